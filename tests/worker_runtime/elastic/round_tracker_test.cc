#include "worker_runtime/elastic/core/round_tracker.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

using worker_contract::LinkReForm;
using worker_contract::LinkSuspend;
using Abort = RoundTracker::Abort;
using Action = RoundTracker::Action;

SteadyTime At(double seconds) { return SteadyTime::FromStart(absl::Seconds(seconds)); }

TEST(RoundTracker, Next_Suspended_SendsItOnceAndEntersTheNextRound) {
  RoundTracker tracker(5);
  EXPECT_FALSE(tracker.suspended());
  EXPECT_EQ(tracker.Suspend({.round = 5}, At(10)), Abort::kAll);
  EXPECT_TRUE(tracker.suspended());
  EXPECT_TRUE(tracker.aborted());
  tracker.Leave(At(11));
  EXPECT_EQ(tracker.Next(At(11)).kind, Action::kSendSuspended);
  const Action wait = tracker.Next(At(11));
  EXPECT_EQ(wait.kind, Action::kWait);
  EXPECT_EQ(wait.deadline, SteadyTime::InfiniteFuture());
  EXPECT_TRUE(tracker.ReForm({{.round = 6, .rank = 3}}, At(12)));
  const Action next = tracker.Next(At(13));
  EXPECT_EQ(next.kind, Action::kReForm);
  EXPECT_EQ(next.re_form.rank, 3);
  EXPECT_EQ(tracker.round(), 6);
  EXPECT_FALSE(tracker.suspended());
  EXPECT_EQ(tracker.suspended_at(), At(10));
  EXPECT_EQ(tracker.re_formed_at(), At(12));
}

TEST(RoundTracker, Suspend_AtStepEnd_AbortsOnlyACreationUntilOneIsUrgent) {
  RoundTracker tracker(5);
  EXPECT_EQ(tracker.Suspend({.round = 5, .at_step_end = true}, At(1)), Abort::kCreation);
  EXPECT_TRUE(tracker.suspended());
  EXPECT_FALSE(tracker.aborted());
  EXPECT_EQ(tracker.Suspend({.round = 5, .at_step_end = false}, At(2)), Abort::kAll);
  EXPECT_TRUE(tracker.aborted());
  EXPECT_EQ(tracker.Suspend({.round = 5, .at_step_end = true}, At(3)), Abort::kAll) << "not less urgent again";
  EXPECT_TRUE(tracker.aborted());
  EXPECT_EQ(tracker.suspended_at(), At(1));
}

TEST(RoundTracker, Next_GroupFailed_WaitsThenSendsFailedOnceThenSuspended) {
  RoundTracker tracker(5);
  tracker.Leave(At(100));
  const Action wait = tracker.Next(At(100));
  EXPECT_EQ(wait.kind, Action::kWait);
  EXPECT_EQ(wait.deadline, At(100) + RoundTracker::kPatience);
  EXPECT_EQ(tracker.Next(wait.deadline).kind, Action::kSendFailed);
  EXPECT_EQ(tracker.Next(wait.deadline).kind, Action::kWait);
  EXPECT_EQ(tracker.Next(At(1000)).deadline, SteadyTime::InfiniteFuture());
  tracker.Suspend({.round = 5}, At(1000));
  EXPECT_EQ(tracker.Next(At(1000)).kind, Action::kSendSuspended);
  EXPECT_EQ(tracker.Next(At(1000)).kind, Action::kWait);
}

TEST(RoundTracker, Next_SuspendedBeforePatienceEnds_NeverSendsFailed) {
  RoundTracker tracker(5);
  tracker.Leave(At(100));
  tracker.Suspend({.round = 5}, At(100.1));
  EXPECT_EQ(tracker.Next(At(100.1)).kind, Action::kSendSuspended);
  EXPECT_EQ(tracker.Next(At(200)).kind, Action::kWait);
}

TEST(RoundTracker, Suspend_NextRoundEndsBeforeItIsEntered_SendsSuspendedForIt) {
  RoundTracker tracker(5);
  tracker.Suspend({.round = 5}, At(1));
  tracker.Leave(At(1));
  EXPECT_EQ(tracker.Next(At(1)).kind, Action::kSendSuspended);
  EXPECT_TRUE(tracker.ReForm({{.round = 6}}, At(2)));
  EXPECT_EQ(tracker.Suspend({.round = 5}, At(2)), Abort::kNothing) << "of an older round";
  EXPECT_EQ(tracker.Suspend({.round = 6}, At(3)), Abort::kAll);
  EXPECT_EQ(tracker.Next(At(3)).kind, Action::kSendSuspended);
  EXPECT_EQ(tracker.round(), 6);
  EXPECT_EQ(tracker.Next(At(3)).kind, Action::kWait);
  EXPECT_TRUE(tracker.ReForm({{.round = 7}}, At(4)));
  EXPECT_EQ(tracker.Next(At(4)).re_form.round, 7);
}

TEST(RoundTracker, Suspend_OlderRound_IsDropped) {
  RoundTracker tracker(5);
  EXPECT_EQ(tracker.Suspend({.round = 4}, At(1)), Abort::kNothing);
  EXPECT_FALSE(tracker.ReForm({{.round = 5}}, At(1)));
  EXPECT_FALSE(tracker.suspended());
  tracker.Suspend({.round = 5}, At(2));
  tracker.Leave(At(2));
  tracker.Next(At(2));
  tracker.ReForm({{.round = 6}}, At(3));
  EXPECT_FALSE(tracker.ReForm({{.round = 6}}, At(3))) << "a repeated one";
  EXPECT_EQ(tracker.Next(At(3)).kind, Action::kReForm);
  EXPECT_FALSE(tracker.ReForm({{.round = 6}}, At(4)));
  EXPECT_EQ(tracker.Suspend({.round = 5}, At(4)), Abort::kNothing);
  EXPECT_FALSE(tracker.suspended());
}

TEST(RoundTracker, Leave_NextRoundFails_WaitsWithNewPatience) {
  RoundTracker tracker(5);
  tracker.Leave(At(10));
  EXPECT_EQ(tracker.Next(At(10) + RoundTracker::kPatience).kind, Action::kSendFailed);
  tracker.Suspend({.round = 5}, At(20));
  EXPECT_EQ(tracker.Next(At(20)).kind, Action::kSendSuspended);
  tracker.ReForm({{.round = 6}}, At(30));
  EXPECT_EQ(tracker.Next(At(30)).kind, Action::kReForm);
  tracker.Leave(At(50));
  EXPECT_EQ(tracker.Next(At(50)).deadline, At(50) + RoundTracker::kPatience);
  EXPECT_EQ(tracker.Next(At(50) + RoundTracker::kPatience).kind, Action::kSendFailed);
  tracker.Suspend({.round = 6}, At(60));
  EXPECT_EQ(tracker.Next(At(60)).kind, Action::kSendSuspended);
}

TEST(RoundTracker, Next_StoppedOrWithoutLauncher_EndsTheWait) {
  RoundTracker stopped(5);
  stopped.Leave(At(1));
  stopped.Stop();
  EXPECT_EQ(stopped.Next(At(1)).kind, Action::kEndStopped);
  RoundTracker closed(5);
  closed.Suspend({.round = 5}, At(1));
  closed.Leave(At(1));
  closed.Close();
  EXPECT_EQ(closed.Next(At(1)).kind, Action::kEndClosed);
}

}  // namespace
}  // namespace ddprun
