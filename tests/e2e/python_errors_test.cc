// How a Python worker's end is explained, without torch's @record: error files and summaries of uncaught exceptions, of
// crashes in native code and in each version of Python that this host has.
#include <glob.h>
#include <pwd.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

// The worker's error file, which lies below `logs`; empty if it left none.
nlohmann::json ErrorFile(const std::string& logs) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(logs)) {
    if (entry.path().filename() != "error.json") continue;
    const nlohmann::json file = nlohmann::json::parse(ReadFile(entry.path()), nullptr, false);
    EXPECT_FALSE(file.is_discarded()) << ReadFile(entry.path());
    return file;
  }
  return {};
}

// Name of an instance, whose parameter is a --preload flag.
std::string NameOfStart(const ::testing::TestParamInfo<const char*>& info) {
  return std::string(info.param).find("none") == std::string::npos ? "Forked" : "Started";
}

class PythonExceptionTest : public ::testing::TestWithParam<const char*> {
 protected:
  // Runs `script` in one worker and returns its error file; empty if it left none.
  nlohmann::json Run(int code, const std::string& script) {
    TempDir dir;
    std::ofstream(dir.File("train.py")) << script << "\n";
    Finished launcher(code, {"--standalone", GetParam(), "--log-dir", dir.File("logs"), dir.File("train.py")},
                      {{"PYTHON_EXEC", "python3"}});
    err_ = launcher.Err();
    return ErrorFile(dir.File("logs"));
  }

  std::string err_;
};

TEST_P(PythonExceptionTest, ErrorFile_UncaughtException_IsTheCause) {
  struct Case {
    const char* script;
    const char* message;    // the start of it
    const char* traceback;  // a part of it
  };
  const Case kCases[] = {
      {"raise ValueError('wrong')", "ValueError: wrong", "line 1, in <module>"},
      {"def step():\n  raise ValueError('wrong')\nstep()", "ValueError: wrong", "line 2, in step\n"},
      {"import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'", "import no_such_module"},
      {"1 +", "SyntaxError: invalid syntax (train.py, line 1)", "    1 +\n"},
      {"import sys\nsys.excepthook = lambda *_: None\nraise ValueError('wrong')", "ValueError: wrong", "line 3"},
      {"class E(Exception):\n  def __str__(self): 1 / 0\nraise E", "E: <exception str() failed>", "line 3"},
      {"raise ValueError('x' * 10**7)", "ValueError: xxx", "characters not shown"},
      {"raise ValueError('\\udc80\\0')", "ValueError: \\udc80\\0", "Traceback"},
      {"try:\n  raise ValueError('first')\nexcept ValueError as e:\n  raise OSError('second') from e",
       "OSError: second", "ValueError: first\n\nThe above exception was the direct cause"},
      {"import multiprocessing\ndef f(_): raise ValueError('in a child')\n"
       "multiprocessing.get_context('fork').Pool(1).map(f, [1])",
       "ValueError: in a child", "RemoteTraceback"},
      {"open(__import__('os').environ['TORCHELASTIC_ERROR_FILE'], 'w').write("
       "'{\"message\": {\"message\": \"recorded\", \"extraInfo\": {\"py_callstack\": \"by the script\"}}}')\n"
       "raise ValueError('wrong')",
       "recorded", "by the script"},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.script);
    const nlohmann::json file = Run(1, c.script);
    ASSERT_FALSE(file.empty()) << err_;
    const std::string message = file["message"]["message"], trace = file["message"]["extraInfo"]["py_callstack"];
    EXPECT_EQ(message.rfind(c.message, 0), 0) << message.substr(0, 200);
    EXPECT_THAT(trace, HasSubstr(c.traceback));
    EXPECT_THAT(err_, HasSubstr("traceback : "));
  }
}

TEST_P(PythonExceptionTest, ErrorFile_OtherEnds_IsAbsent) {
  struct Case {
    int code;
    const char* script;
  };
  const Case kCases[] = {
      {1, "import sys; sys.exit('text')"},
      {3, "import sys; sys.exit(3)"},
      {4, "class E(SystemExit): pass\nraise E(4)"},
      {130, "raise KeyboardInterrupt"},
      {3,
       "import sys, threading\ndef f(): raise ValueError\nt = threading.Thread(target=f)\nt.start()\nt.join()\n"
       "sys.exit(3)"},
      {3,
       "import multiprocessing, sys\ndef f(): raise ValueError\n"
       "p = multiprocessing.get_context('fork').Process(target=f)\np.start()\np.join()\nsys.exit(3)"},
      {3, "import os, sys\nif os.fork() == 0: raise ValueError\nos.wait()\nsys.exit(3)"},
      {3, "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'raise ValueError'])\nsys.exit(3)"},
      {3,
       "import ctypes, sys\nprinter = ctypes.PYFUNCTYPE(None)(('PyErr_Print', ctypes.pythonapi))\n"
       "try: ctypes.pythonapi.PyErr_SetNone(ctypes.py_object(ValueError))\nexcept ValueError: pass\nsys.exit(3)"},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.script);
    EXPECT_TRUE(Run(c.code, c.script).empty()) << err_;
  }
}

TEST_P(PythonExceptionTest, ErrorFile_NoMemoryForThreads_HasOnlyTheException) {
  Run(1, "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1, 1))\nraise ValueError('first')");
  EXPECT_THAT(err_.substr(err_.find("Root Cause")), HasSubstr("\n    ValueError: first\n"));
  EXPECT_THAT(err_, Not(HasSubstr("start new thread"))) << "which flushes files";
}

INSTANTIATE_TEST_SUITE_P(Workers, PythonExceptionTest, ::testing::Values("--preload=none", "--preload=json"),
                         NameOfStart);

// Uncaught exceptions in each version of Python that this host has.

constexpr int kOldest = 8, kNewest = 14;  // minor versions

// An interpreter of the distribution, pyenv or uv; empty: there is none.
std::string FindPython(int minor) {
  const passwd* const user = getpwuid(getuid());
  const std::string home = user == nullptr ? "" : user->pw_dir, name = absl::StrCat("/bin/python3.", minor);
  for (const std::string& pattern :
       {"/usr" + name, "/usr/local" + name, absl::StrCat(home, "/.pyenv/versions/3.", minor, ".*", name),
        absl::StrCat(home, "/.local/share/uv/python/cpython-3.", minor, ".*", name)}) {
    glob_t found = {};
    const std::string first = glob(pattern.c_str(), 0, nullptr, &found) == 0 ? found.gl_pathv[0] : "";
    globfree(&found);
    if (!first.empty()) return first;
  }
  return "";
}

struct PythonCause {
  const char* name;
  const char* script;
  const char* message;
  std::vector<const char*> traceback;  // parts of it
  std::vector<std::string> flags = {};
};

constexpr char kChain[] =
    "import broken\n"
    "try:\n  broken.f()\nexcept ValueError as error:\n  raise RuntimeError('after it') from error\n";
const std::vector<const char*> kChainTraceback = {"broken.py\", line 1, in f", "ValueError: in a module",
                                                  "direct cause of", "train.py\", line 5, in <module>",
                                                  "RuntimeError: after it"};

const PythonCause kPythonCauses[] = {
    {"Chain", kChain, "RuntimeError: after it", kChainTraceback},
    {"ChainPreloaded", kChain, "RuntimeError: after it", kChainTraceback, {"--preload=json"}},
    {"ImporterRaises",
     "import sys\nclass Importer:\n  def find_spec(*_): raise TypeError('in the importer')\n"
     "sys.meta_path.insert(0, Importer())\nraise ValueError('first')\n",
     "ValueError: first",
     {"    raise ValueError('first')"}},
    {"LibraryIsGone",
     "import encodings\nencodings.__path__[0] = '/nowhere'\ndef f(): raise ValueError('first')\nf()\n",
     "ValueError: first",
     {"Traceback (most recent call last):", "line 4, in <module>", "line 3, in f"}},
    {"OutOfDescriptors",
     "import resource\n"
     "resource.setrlimit(resource.RLIMIT_NOFILE, (20, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
     "files = []\nwhile True: files.append(open('/dev/null'))\n",
     "OSError: [Errno 24] Too many open files: '/dev/null'",
     {"    while True: files.append(open('/dev/null'))"}},
    {"PrintedInASubinterpreter",
     "try:\n  import _testcapi\nexcept ImportError:\n  raise ValueError('real')\n"
     "_testcapi.run_in_subinterp('raise TypeError(\"printed\")')\nraise ValueError('real')\n",
     "ValueError: real",
     {"in <module>"}},
};

class CausesInPythonTest : public ::testing::TestWithParam<int> {
 protected:
  CausesInPythonTest() { std::ofstream(dir_.File("broken.py")) << "def f(): raise ValueError('in a module')\n"; }

  // The development mode checks every block of memory that Python frees.
  Finished Run(int code, const std::string& script, std::vector<std::string> flags = {}) const {
    std::ofstream(dir_.File("train.py")) << script;
    flags.insert(flags.end(), {"--standalone", dir_.File("train.py")});
    return Finished(code, flags, {{"PYTHON_EXEC", python_}, {"PYTHONDEVMODE", "1"}, {"PYTHONWARNINGS", "ignore"}});
  }

  const TempDir dir_;
  const std::string python_ = FindPython(GetParam());
};

TEST_P(CausesInPythonTest, Summary_UncaughtException_HasTypeMessageAndTraceback) {
  if (python_.empty()) GTEST_SKIP() << "no Python 3." << GetParam();
  for (const PythonCause& cause : kPythonCauses) {
    SCOPED_TRACE(cause.name);
    const std::string err = Run(1, cause.script, cause.flags).Err();
    // Not from stderr, which a terminal keeps.
    EXPECT_THAT(err, AllOf(HasSubstr(absl::StrCat("  message   : ", cause.message, "\n  traceback : Traceback (")),
                           Not(HasSubstr("last lines of stderr"))));
    for (const char* part : cause.traceback) EXPECT_THAT(err.substr(err.find("Root Cause")), HasSubstr(part));
  }
}

TEST_P(CausesInPythonTest, Run_ScriptEnds_Succeeds) {
  if (python_.empty()) GTEST_SKIP() << "no Python 3." << GetParam();
  EXPECT_EQ(Run(0, "print('done')\n").Out(), "done\n");
}

INSTANTIATE_TEST_SUITE_P(Versions, CausesInPythonTest, ::testing::Range(kOldest, kNewest + 1),
                         [](const auto& info) { return absl::StrCat("3_", info.param); });

// Reports of Python workers that crash in native code. Real interpreters: that of .venv, else the system's.

class PythonCrashTest : public ::testing::TestWithParam<const char*> {
 protected:
  // Runs `script` in one worker, with files in the folder "logs".
  int Run(const std::string& script, std::map<std::string, std::string> environment = {},
          const std::string& launcher = "launcher/ddprun") {
    std::ofstream(dir_.File("train.py")) << script;
    environment["PYTHON_EXEC"] = VenvPython().empty() ? "python3" : VenvPython();
    Process process({launcher, "--standalone", GetParam(), "--log-dir", dir_.File("logs"), dir_.File("train.py")},
                    std::move(environment));
    const int code = process.Wait();
    out_ = process.Out();
    err_ = process.Err();
    return code;
  }

  nlohmann::json ErrorFile() const { return ddprun::testing::ErrorFile(dir_.File("logs")); }
  std::string Message() const { return ErrorFile()["message"]["message"]; }
  std::string Stack() const { return ErrorFile()["message"]["extraInfo"]["py_callstack"]; }

  const TempDir dir_;
  std::string out_, err_;
};

constexpr char kCrash[] = R"(
import ctypes
def step():
    ctypes.string_at(16)
def train():
    step()
)";

TEST_P(PythonCrashTest, Crash_InvalidAccess_ErrorFileAndSummaryHaveBothStacks) {
  EXPECT_EQ(Run(std::string(kCrash) + "train()"), 128 + SIGSEGV);
  EXPECT_EQ(Message(), "invalid memory access at address 0x10");
  const auto both = AllOf(HasSubstr("Python stack (most recent call first):\n"),
                          HasSubstr("File \"" + dir_.File("train.py") + "\", line 4 in step\n"),
                          HasSubstr("line 6 in train\n"), HasSubstr("Native stack (most recent call first):\n"),
                          HasSubstr("ffi_call"), Not(HasSubstr("libddprun_crash.so")));
  EXPECT_THAT(Stack(), both);
  EXPECT_THAT(err_, HasSubstr("was killed by SIGSEGV: invalid memory access at address 0x10"));
  EXPECT_THAT(err_, HasSubstr("line 4 in step\n"));
}

TEST_P(PythonCrashTest, Crash_AbortOrForeignSignal_IsNamed) {
  EXPECT_EQ(Run("import os\nos.abort()"), 128 + SIGABRT);
  EXPECT_EQ(Message(), "abort() was called");
  std::filesystem::remove_all(dir_.File("logs"));
  EXPECT_EQ(Run("import os\nos.system(f'kill -SEGV {os.getpid()}')"), 128 + SIGSEGV);
  EXPECT_THAT(Message(), HasSubstr("SIGSEGV was sent by process "));
}

TEST_P(PythonCrashTest, Crash_ThreadWithoutPython_HasNativeStack) {
  EXPECT_EQ(Run(R"(
import ctypes, threading
libc = ctypes.CDLL(None)
thread = ctypes.c_ulong()
libc.pthread_create(ctypes.byref(thread), None, libc.abort, None)
libc.pthread_join(thread, None)
)"),
            128 + SIGABRT);
  EXPECT_THAT(Stack(), AllOf(Not(HasSubstr("Python stack")), HasSubstr("abort")));
}

// The overflowed stack has no room for a signal handler.
TEST_P(PythonCrashTest, Crash_StackOverflow_IsReported) {
  EXPECT_EQ(Run(R"(
import ctypes
libc = ctypes.CDLL(None)
compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
import sys
sys.setrecursionlimit(10**7)
@compare
def deeper(a, b):
    libc.qsort(data, 2, 4, deeper)
    return 0
data = (ctypes.c_int * 2)()
libc.qsort(data, 2, 4, deeper)
)"),
            128 + SIGSEGV);
  EXPECT_THAT(Message(), HasSubstr("stack overflow at address 0x"));
  EXPECT_THAT(Stack(), AllOf(HasSubstr("qsort"), HasSubstr("more calls like the last ")));
}

TEST_P(PythonCrashTest, Crash_FaulthandlerOfTheScript_StillWorks) {
  EXPECT_EQ(Run("import faulthandler\nfaulthandler.enable()" + std::string(kCrash) + "train()"), 128 + SIGSEGV);
  EXPECT_THAT(err_, HasSubstr("Fatal Python error: Segmentation fault"));
  EXPECT_THAT(Stack(), HasSubstr("line 5 in step\n"));
}

TEST_P(PythonCrashTest, Crash_ErrorFileWrittenByWorker_IsKept) {
  EXPECT_EQ(Run(R"(
import json, os
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
    json.dump({"message": {"message": "the data are bad"}}, file)
os.abort()
)"),
            128 + SIGABRT);
  EXPECT_EQ(Message(), "the data are bad");
}

TEST_P(PythonCrashTest, Crash_ForkedChild_IsNotReported) {
  EXPECT_EQ(Run("import os\nif os.fork() == 0: os.abort()\nassert os.WTERMSIG(os.wait()[1]) == 6"), 0) << err_;
  EXPECT_TRUE(ErrorFile().empty()) << ErrorFile();
}

TEST_P(PythonCrashTest, Environment_Workers_LdPreloadIsUnchanged) {
  const std::string script = R"(
import os, subprocess
print(os.environ.get("LD_PRELOAD"))
print(subprocess.run("echo $LD_PRELOAD", shell=True, capture_output=True, text=True).stdout.strip())
)";
  EXPECT_EQ(Run(script), 0) << err_;
  EXPECT_EQ(out_, "None\n\n");
#ifndef __SANITIZE_ADDRESS__  // the launcher would not start: its runtime has to be loaded first
  EXPECT_EQ(Run(script, {{"LD_PRELOAD", "libm.so.6"}}), 0) << err_;
  EXPECT_EQ(out_, "libm.so.6\nlibm.so.6\n");
  // Named like a sanitizer's runtime.
  const std::string sanitizer = dir_.File("libasan.so.8");
  ASSERT_TRUE(Process({"/usr/bin/env", "python3", "-c", R"(
import ctypes, shutil, sys
ctypes.CDLL("libm.so.6")
shutil.copy([line.split()[-1] for line in open("/proc/self/maps") if "libm.so" in line][0], sys.argv[1])
)",
                       sanitizer})
                  .Wait() == 0);
  for (const char* others : {"", ":libm.so.6"}) {
    const std::string list = sanitizer + others;
    EXPECT_EQ(Run(script, {{"LD_PRELOAD", list}}), 0) << err_;
    EXPECT_EQ(out_, absl::StrCat(list, "\n", list, "\n"));
  }
#endif
}

TEST_P(PythonCrashTest, Library_Missing_WorkersRunWithWarning) {
  const std::string alone = dir_.File("ddprun");
  std::filesystem::copy_file(std::filesystem::canonical("launcher/ddprun"), alone);
  EXPECT_EQ(Run("print('ran')", {{"LOGLEVEL", "INFO"}}, alone), 0) << err_;
  EXPECT_EQ(out_, "ran\n");
  EXPECT_THAT(err_, HasSubstr("crashes in native code will be reported without a stack: "));
}

INSTANTIATE_TEST_SUITE_P(Workers, PythonCrashTest, ::testing::Values("--preload=none", "--preload=ctypes"),
                         NameOfStart);

}  // namespace
}  // namespace ddprun::testing
