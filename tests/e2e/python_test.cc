// Choice of the workers' Python, and the hint if it lacks torch. The Pythons here are shell scripts.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

class PythonTest : public ::testing::Test {
 protected:
  PythonTest() { std::ofstream(dir_.File("train.py")) << "import torch\n"; }

  // Creates a virtual environment whose interpreter runs `script`.
  std::string MakeVenv(const std::string& name, const std::string& script) const {
    const std::string venv = dir_.File(name);
    std::filesystem::create_directories(venv + "/bin");
    std::ofstream(venv + "/pyvenv.cfg") << "home = /nowhere\n";
    std::ofstream(venv + "/bin/python") << "#!/bin/sh\n" << script << "\n";
    chmod((venv + "/bin/python").c_str(), 0755);
    return venv;
  }
  static void GiveTorch(const std::string& venv) {
    std::filesystem::create_directories(venv + "/lib/python3.11/site-packages/torch");
  }
  std::string train() const { return dir_.File("train.py"); }

  const TempDir dir_;
};

TEST_F(PythonTest, Python_CommandInVenv_IsThatOfTheVenv) {
  const std::string own = MakeVenv("own", "echo own $2"), active = MakeVenv("active", "echo active $2");
  const std::string link = own + "/bin/ddprun";
  ASSERT_EQ(symlink(std::filesystem::absolute("launcher/ddprun").c_str(), link.c_str()), 0);
  Process called({link, "--standalone", train()}, {{"VIRTUAL_ENV", active}, {"LOGLEVEL", "INFO"}});
  EXPECT_EQ(called.Wait(), 0) << called.Err();
  EXPECT_EQ(called.Out(), "own " + train() + "\n");
  EXPECT_THAT(called.Err(), HasSubstr("running workers with " + own + "/bin/python\n"));
  Finished elsewhere(0, {"--standalone", train()}, {{"VIRTUAL_ENV", active}});
  EXPECT_EQ(elsewhere.Out(), "active " + train() + "\n");
}

TEST_F(PythonTest, Python_PythonExecWithArguments_IsUsed) {
  Finished launcher(0, {"--standalone", train(), "x"}, {{"PYTHON_EXEC", "/bin/echo 'a  b' c"}});
  EXPECT_EQ(launcher.Out(), "a  b c -u " + train() + " x\n");
}

TEST_F(PythonTest, Hint_TorchInAnotherVenv_NamesBoth) {
  const std::string empty = MakeVenv("empty", "echo \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1");
  const std::string full = MakeVenv("full", "exit 1");
  GiveTorch(full);
  const std::string python = empty + "/bin/python";
  Finished launcher(1, {"--standalone", train()}, {{"PYTHON_EXEC", python}, {"VIRTUAL_ENV", full}});
  EXPECT_THAT(launcher.Err(), HasSubstr("Python: " + python + "\n"));
  EXPECT_THAT(launcher.Err(), HasSubstr("PYTHON_EXEC=" + full + "/bin/python\n"));

  GiveTorch(empty);
  Finished other_reason(1, {"--standalone", train()}, {{"PYTHON_EXEC", python}, {"VIRTUAL_ENV", full}});
  EXPECT_THAT(other_reason.Err(), Not(HasSubstr("Hint"))) << "it has torch";
}

TEST_F(PythonTest, Hint_ScriptWithoutTorch_IsAbsent) {
  std::ofstream(train()) << "import sys\n";
  const std::string empty = MakeVenv("empty", "exit 1"), full = MakeVenv("full", "exit 1");
  GiveTorch(full);
  Finished launcher(1, {"--standalone", train()}, {{"PYTHON_EXEC", empty + "/bin/python"}, {"VIRTUAL_ENV", full}});
  EXPECT_THAT(launcher.Err(), Not(HasSubstr("Hint")));
}

}  // namespace
}  // namespace ddprun::testing
