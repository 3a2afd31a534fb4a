#include "rendezvous/core/verdicts.h"

#include "gtest/gtest.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

WorkerFailure Exit(int code, bool restartable = true) {
  WorkerFailure failure = TextProto("host: 'node-a' rank: 3 pid: 77", NewFailure());
  failure.set_exit_code(code);
  failure.set_restartable(restartable);
  return failure;
}

JobSettings Limited(int max_restarts) {
  JobSettings settings = DefaultSettings();
  settings.set_max_restarts(max_restarts);
  return settings;
}

TEST(VerdictsTest, Judge_SameRankAtSameStep_SaysNoProgress) {
  RestartBudget budget(Limited(9));
  WorkerFailure failure = Exit(3);
  failure.set_step(120);
  EXPECT_EQ(Judge(failure, &budget, SteadyTime()), std::nullopt);
  EXPECT_EQ(Judge(failure, &budget, SteadyTime()), std::nullopt);
  const auto verdict = Judge(failure, &budget, SteadyTime());
  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(verdict->exit_code(), kExitNoProgress);
  EXPECT_EQ(verdict->reason(),
            "rank 3 on node-a (pid 77) exited with code 3; no progress: failed 3 times in a row at step "
            "120 (max_failures_at_step)");
}

TEST(VerdictsTest, Judge_ChargesUntilNoRestartIsLeft) {
  RestartBudget budget(Limited(2));
  EXPECT_EQ(Judge(Exit(3), &budget, SteadyTime()), std::nullopt);
  EXPECT_EQ(Judge(Exit(3), &budget, SteadyTime()), std::nullopt);
  EXPECT_EQ(budget.used(), 2);
  const auto verdict = Judge(Exit(3), &budget, SteadyTime());
  ASSERT_TRUE(verdict.has_value());
  EXPECT_FALSE(verdict->succeeded());
  EXPECT_EQ(verdict->exit_code(), 3);
  EXPECT_EQ(FirstCause(*verdict), Exit(3));
  EXPECT_EQ(budget.used(), 2);
}

TEST(VerdictsTest, Judge_NoUseRestarting_ChargesNothing) {
  RestartBudget budget(Limited(2));
  const auto verdict = Judge(Exit(78, false), &budget, SteadyTime());
  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(verdict->exit_code(), 78);
  EXPECT_EQ(budget.used(), 0);
}

TEST(VerdictsTest, Failed_NeverEndsWithZero) {
  EXPECT_EQ(Failed("timed out", std::nullopt).exit_code(), 1);
  EXPECT_EQ(Failed("lost", Exit(0)).exit_code(), 1);
  WorkerFailure killed = Exit(0);
  killed.set_signal(9);
  EXPECT_EQ(Failed("killed", killed).exit_code(), 137);
}

TEST(VerdictsTest, Succeeded_EndsWithZero) {
  EXPECT_EQ(Succeeded(1).reason(), "the only worker succeeded");
  EXPECT_EQ(Succeeded(8).reason(), "all 8 workers succeeded");
  EXPECT_EQ(Succeeded(8).exit_code(), 0);
}

TEST(VerdictsTest, AllLeft_NamesTheLastOne) {
  const Verdict verdict = AllLeft("node a left", Exit(1));
  EXPECT_EQ(verdict.reason(), "all launchers left; last: node a left");
  EXPECT_EQ(verdict.exit_code(), 1);
}

}  // namespace
}  // namespace ddprun::rendezvous
