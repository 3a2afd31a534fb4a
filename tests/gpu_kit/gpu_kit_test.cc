// The kit for a real GPU, on simulated ones.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

class GpuKitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (VenvPython().empty()) GTEST_SKIP() << "there is no .venv with torch";
  }

  std::vector<std::string> Command(std::vector<std::string> parts) const {
    std::vector<std::string> command = {VenvPython(), "tests/gpu_kit/run.py", "--simulated", "--out=" + out_.path()};
    command.insert(command.end(), parts.begin(), parts.end());
    return command;
  }

  std::string FileIn(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(out_.File(name)).rdbuf();
    return text.str();
  }

  nlohmann::json Results() const { return nlohmann::json::parse(FileIn("results.json")); }

  const TempDir out_;
};

// Ranks that share the device, in C++ and over NCCL, with the bits of a training without failures.
TEST_F(GpuKitTest, Parts_Pass) {
  Process run(Command({"count", "node", "python"}));
  ASSERT_EQ(run.Wait(4 * Process::kPatience), 0) << run.Out() << run.Err();
  const nlohmann::json results = Results();
  EXPECT_EQ(results["state"], "ended");
  // Files in /dev are simulated where the host allows mount namespaces.
  const nlohmann::json& count = results["parts"]["count"];
  if (count["state"] != "skipped") EXPECT_EQ(count["figures"]["--nproc-per-node=gpu"], 1);
  EXPECT_TRUE(results["parts"]["node"]["figures"].contains("node lost: kill to next step, ms")) << run.Out();
  EXPECT_THAT(FileIn("page.txt"), HasSubstr("node lost: kill to next step, ms"));
  EXPECT_NE(FileIn("logs.tgz"), "");
}

// Machines are taken back at any moment.
TEST_F(GpuKitTest, Killed_LeavesWhatItFound) {
  Process run(Command({"count", "node"}));
  ASSERT_TRUE(run.WaitForOut("count: ")) << run.Out() << run.Err();
  run.Signal(SIGKILL);
  run.Wait();
  const nlohmann::json results = Results();
  EXPECT_EQ(results["state"], "running");
  EXPECT_NE(results["parts"]["count"]["state"], "running");
  EXPECT_THAT(FileIn("page.txt"), HasSubstr("count: "));
}

TEST_F(GpuKitTest, NoTimeLeft_PartsAreNamedAsNotReached) {
  Process run(Command({"--minutes=0.1", "node"}));
  EXPECT_EQ(run.Wait(), 0) << run.Err();
  EXPECT_EQ(Results()["parts"]["node"]["state"], "not reached");
}

TEST_F(GpuKitTest, UnknownPart_IsNamed) {
  Process run(Command({"nosuch"}));
  EXPECT_EQ(run.Wait(), 2);
  EXPECT_THAT(run.Err(), HasSubstr("there is no part nosuch"));
}

}  // namespace
}  // namespace ddprun::testing
