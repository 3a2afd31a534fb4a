// examples/python/report_progress.py
#include <signal.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;

class PythonExampleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (VenvPython().empty()) GTEST_SKIP() << "there is no .venv";
  }

  // In a folder of its own, into which it saves.
  std::string Command() const {
    return "cd " + dir_.path() + " && exec " + std::filesystem::absolute("launcher/ddprun").string() +
           " --standalone --nproc-per-node=2 " +
           std::filesystem::absolute("examples/python/report_progress.py").string() + " 1000000000";
  }
  std::map<std::string, std::string> Environment() const {
    return {{"PYTHON_EXEC", VenvPython()}, {"PYTHONPATH", std::filesystem::absolute("packaging/wheel")}};
  }

  const TempDir dir_;
};

TEST_F(PythonExampleTest, Stopped_SavesFirst) {
  Process launcher({"/bin/sh", "-c", Command()}, Environment());
  ASSERT_TRUE(launcher.WaitForOut("rank 0 trains\n")) << launcher.Err();
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM) << launcher.Err();
  EXPECT_THAT(launcher.Out(), HasSubstr("saved before step "));
  EXPECT_TRUE(std::filesystem::exists(dir_.File("snapshot.pt")));
}

}  // namespace
}  // namespace ddprun::testing
