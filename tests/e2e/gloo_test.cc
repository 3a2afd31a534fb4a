// Unmodified torch.distributed scripts: init_process_group("gloo") against the launcher's store, in every attempt.
#include <gtest/gtest.h>

#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

class GlooTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (VenvPython().empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
  }
  static std::map<std::string, std::string> Environment() { return {{"PYTHON_EXEC", VenvPython()}}; }
  static std::vector<std::string> Flags(std::vector<std::string> flags, std::vector<std::string> arguments) {
    flags.push_back("tests/e2e/gloo_worker.py");
    flags.insert(flags.end(), arguments.begin(), arguments.end());
    return flags;
  }
};

TEST_F(GlooTest, OneNode_AllReduceAgainAfterEveryRestart) {
  Finished launcher(0,
                    Flags({"--standalone", "--nproc-per-node=3", "--max-restarts=3"},
                          {"--die=1:0:kill", "--die=0:1:kill", "--die=2:2:5"}),
                    Environment());
  for (int attempt = 0; attempt < 4; ++attempt) {
    EXPECT_EQ(Count(launcher.Out(), absl::StrCat("attempt=", attempt, " ")), 3) << launcher.Out() << launcher.Err();
  }
}

TEST_F(GlooTest, TwoNodes_AllReduceAgainAfterRankZeroDied) {
  const std::vector<std::string> flags = Flags(
      {"--nnodes=2", "--nproc-per-node=2", absl::StrCat("--rdzv-endpoint=127.0.0.1:", FreePort()), "--max-restarts=1"},
      {"--die=0:0:kill"});
  Launcher a(flags, Environment()), b(flags, Environment());
  ExpectEnd({&a, &b});
  EXPECT_EQ(Count(a.Out() + b.Out(), "attempt=1"), 4) << a.Out() << b.Out();
}

TEST_F(GlooTest, RankThatDoesNotCome_IsNamedWithItsHost) {
  TempDir dir;
  const std::vector<std::string> flags =
      Flags({"--nnodes=2", "--nproc-per-node=2", absl::StrCat("--rdzv-endpoint=127.0.0.1:", FreePort())},
            {"--late=3:" + dir.File("go")});
  std::vector<std::string> first = flags, second = flags;
  first.insert(first.begin(), "--node-rank=0");
  second.insert(second.begin(), "--node-rank=1");
  Launcher a(first, Environment()), b(second, Environment());
  EXPECT_TRUE(a.WaitForErr("rank 3 on ")) << a.Err();
  EXPECT_THAT(a.Err(), HasSubstr("has not joined"));
  Touch(dir.File("go"));
  ExpectEnd({&a, &b});
  EXPECT_THAT(b.Err(), Not(HasSubstr("has not joined"))) << "only the store's host says it";
}

TEST_F(GlooTest, ExceptionInOneRank_SummaryHasItsTypeMessageAndTraceback) {
  Finished launcher(1, Flags({"--standalone", "--nproc-per-node=2"}, {"--die=1:0:raise"}), Environment());
  EXPECT_THAT(launcher.Err(), AllOf(HasSubstr("RuntimeError: the weights are not finite"), HasSubstr("Traceback")));
}

}  // namespace
}  // namespace ddprun::testing
