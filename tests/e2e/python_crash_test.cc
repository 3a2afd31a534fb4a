// Reports of Python workers that crash in native code. Real interpreters: that of .venv, else the system's.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

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

  // The worker's error file; empty if it left none.
  nlohmann::json ErrorFile() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_.File("logs"))) {
      if (entry.path().filename() != "error.json") continue;
      const nlohmann::json file = nlohmann::json::parse(ReadFile(entry.path()), nullptr, false);
      EXPECT_FALSE(file.is_discarded()) << ReadFile(entry.path());
      return file;
    }
    return {};
  }
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

TEST_P(PythonCrashTest, InvalidAccess_TheErrorFileAndTheSummaryHaveBothStacks) {
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

TEST_P(PythonCrashTest, AbortAndASignalOfAnotherProcess_AreNamed) {
  EXPECT_EQ(Run("import os\nos.abort()"), 128 + SIGABRT);
  EXPECT_EQ(Message(), "abort() was called");
  std::filesystem::remove_all(dir_.File("logs"));
  EXPECT_EQ(Run("import os\nos.system(f'kill -SEGV {os.getpid()}')"), 128 + SIGSEGV);
  EXPECT_THAT(Message(), HasSubstr("SIGSEGV was sent by process "));
}

TEST_P(PythonCrashTest, ThreadWithoutPython_HasItsNativeStack) {
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
TEST_P(PythonCrashTest, StackOverflow_IsReportedToo) {
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

TEST_P(PythonCrashTest, FaulthandlerOfTheScript_WorksAsBefore) {
  EXPECT_EQ(Run("import faulthandler\nfaulthandler.enable()" + std::string(kCrash) + "train()"), 128 + SIGSEGV);
  EXPECT_THAT(err_, HasSubstr("Fatal Python error: Segmentation fault"));
  EXPECT_THAT(Stack(), HasSubstr("line 5 in step\n"));
}

TEST_P(PythonCrashTest, ErrorThatTheWorkerHasWritten_Stays) {
  EXPECT_EQ(Run(R"(
import json, os
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
    json.dump({"message": {"message": "the data are bad"}}, file)
os.abort()
)"),
            128 + SIGABRT);
  EXPECT_EQ(Message(), "the data are bad");
}

TEST_P(PythonCrashTest, CrashOfAProcessThatTheWorkerForked_IsNotTheWorkers) {
  EXPECT_EQ(Run("import os\nif os.fork() == 0: os.abort()\nassert os.WTERMSIG(os.wait()[1]) == 6"), 0) << err_;
  EXPECT_TRUE(ErrorFile().empty()) << ErrorFile();
}

TEST_P(PythonCrashTest, Environment_IsWhatItWouldBeWithoutTheLibrary) {
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

TEST_P(PythonCrashTest, WithoutTheLibrary_WorkersRunAndALineSaysWhatIsMissing) {
  const std::string alone = dir_.File("ddprun");
  std::filesystem::copy_file(std::filesystem::canonical("launcher/ddprun"), alone);
  EXPECT_EQ(Run("print('ran')", {{"LOGLEVEL", "INFO"}}, alone), 0) << err_;
  EXPECT_EQ(out_, "ran\n");
  EXPECT_THAT(err_, HasSubstr("crashes in native code will be reported without a stack: "));
}

INSTANTIATE_TEST_SUITE_P(Workers, PythonCrashTest, ::testing::Values("--preload=none", "--preload=ctypes"),
                         [](const auto& info) {
                           return std::string(info.param).find("none") == std::string::npos ? "Forked" : "Started";
                         });

}  // namespace
}  // namespace ddprun::testing
