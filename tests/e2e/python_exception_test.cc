// Uncaught exceptions of Python workers without torch's @record: the error file and the summary have the cause.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

class PythonExceptionTest : public ::testing::TestWithParam<const char*> {
 protected:
  // Runs `script` in one worker and returns its error file; empty if it left none.
  nlohmann::json Run(int code, const std::string& script) {
    TempDir dir;
    std::ofstream(dir.File("train.py")) << script << "\n";
    Finished launcher(code, {"--standalone", GetParam(), "--log-dir", dir.File("logs"), dir.File("train.py")},
                      {{"PYTHON_EXEC", "python3"}});
    err_ = launcher.Err();
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir.File("logs"))) {
      if (entry.path().filename() == "error.json") return nlohmann::json::parse(ReadFile(entry.path()));
    }
    return {};
  }

  std::string err_;
};

TEST_P(PythonExceptionTest, ExceptionThatEndsTheWorker_IsTheCause) {
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

TEST_P(PythonExceptionTest, OtherEnds_LeaveNoErrorFile) {
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

TEST_P(PythonExceptionTest, WithoutMemoryForThreads_OnlyTheExceptionIsShown) {
  Run(1, "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1, 1))\nraise ValueError('first')");
  EXPECT_THAT(err_.substr(err_.find("Root Cause")), HasSubstr("\n    ValueError: first\n"));
  EXPECT_THAT(err_, Not(HasSubstr("start new thread"))) << "which flushes files";
}

INSTANTIATE_TEST_SUITE_P(Workers, PythonExceptionTest, ::testing::Values("--preload=none", "--preload=json"),
                         [](const auto& info) {
                           return std::string(info.param).find("none") == std::string::npos ? "Forked" : "Started";
                         });

TEST(PythonExceptionNodesTest, EveryNodesSummary_HasRankAndTraceback) {
  TempDir dir;
  std::ofstream(dir.File("train.py")) << "import os, signal\n"
                                         "if os.environ['RANK'] == '1': raise ValueError('the data are bad')\n"
                                         "signal.pause()\n";
  const std::vector<std::string> flags = {"--nnodes=2", absl::StrCat("--rdzv-endpoint=127.0.0.1:", FreePort()),
                                          dir.File("train.py")};
  Launcher a(flags, {{"PYTHON_EXEC", "python3"}}), b(flags, {{"PYTHON_EXEC", "python3"}});
  ExpectEnd({&a, &b}, 1);
  for (Launcher* node : {&a, &b}) {
    EXPECT_THAT(node->Err(),
                AllOf(HasSubstr("rank      : 1 (local_rank: 0)"), HasSubstr("message   : ValueError: the data are bad"),
                      HasSubstr("traceback : Traceback (most recent call last):"), HasSubstr("line 2, in")));
  }
}

}  // namespace
}  // namespace ddprun::testing
