// Breakpoints in workers, by debugpy of .venv.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

constexpr char kScript[] =
    "import os, sys\n"
    "import ddprun\n"
    "def step(way):\n"
    "    return f'rank {os.environ[\"RANK\"]} {way} {os.environ.get(\"PYTHON_EXEC\")}'\n"
    "if __name__ == '__main__' and 'RANK' in os.environ:\n"
    "    os.write(1, f'{step(sys.argv[1])}\\n'.encode())\n"
    "elif __name__ == '__main__':\n"
    "    print(ddprun.launch(step, (sys.argv[1],), nproc_per_node=2, start_method=sys.argv[1]))\n";
constexpr int kLineOfStep = 4;

class DebuggerTest : public ::testing::Test {
 protected:
  // Returns the output of an editor that launches `what`, the arguments of a launch request.
  std::string Debug(const std::string& what) const {
    const std::string script = dir_.File("train.py");
    std::ofstream(script) << kScript;
    Process editor({VenvPython(), "tests/e2e/debug_workers.py", script, absl::StrCat(kLineOfStep),
                    absl::StrCat("{\"cwd\": \"", dir_.path(), "\", ", what, "}")},
                   {{"PYTHONPATH", std::filesystem::absolute("packaging/wheel")},
                    {"DDPRUN_PROGRAM", std::filesystem::absolute("launcher/ddprun")}});
    EXPECT_EQ(editor.Wait(), 0) << editor.Err();
    return editor.Out() + editor.Err();
  }
  void SetUp() override {
    if (VenvPython().empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
  }

  const TempDir dir_;
};

TEST_F(DebuggerTest, Module_BreakpointInWorkers_IsHit) {
  for (const char* script : {"\"train.py\"", "\"-m\", \"train\""}) {
    const std::string out =
        Debug(absl::StrCat("\"module\": \"ddprun\", \"args\": [\"--standalone\", "
                           "\"--nproc-per-node=2\", ",
                           script, ", \"a b\"]"));
    EXPECT_EQ(Count(out, "stopped in step at train.py:4\n"), 2) << out;
    EXPECT_THAT(out, AllOf(HasSubstr("rank 0 a b None\n"), HasSubstr("rank 1 a b None\n"), HasSubstr("exit code 0\n")));
  }
}

TEST_F(DebuggerTest, Launch_BreakpointInFunction_IsHit) {
  for (const char* method : {"spawn", "fork"}) {
    const std::string out = Debug(absl::StrCat("\"program\": \"train.py\", \"args\": [\"", method, "\"]"));
    EXPECT_EQ(Count(out, "stopped in step at train.py:4\n"), 2) << out;
    EXPECT_THAT(out, AllOf(HasSubstr(absl::StrCat("1: 'rank 1 ", method, " None'}")), HasSubstr("exit code 0\n")));
  }
}

TEST_F(DebuggerTest, Preload_Debugger_WarnsThatItDoesNotFollow) {
  const std::string out =
      Debug("\"module\": \"ddprun\", \"args\": [\"--standalone\", \"--preload\", \"train.py\", \"x\"]");
  EXPECT_THAT(
      out, AllOf(HasSubstr("rank 0 x None\n"), HasSubstr("the debugger does not follow"), HasSubstr("exit code 0\n")));
}

}  // namespace
}  // namespace ddprun::testing
