#include "rendezvous/core/job_state.h"

#include <set>
#include <utility>

#include "gtest/gtest.h"

namespace ddprun::rendezvous {
namespace {

constexpr JobState kAll[] = {JobState::kWaiting,    JobState::kLastCall, JobState::kStopping, JobState::kRunning,
                             JobState::kRecovering, JobState::kFinished, JobState::kFailed};

TEST(JobStateTest, Transitions_AreListedOnceWithAReason) {
  std::set<std::pair<JobState, JobState>> seen;
  for (const Transition& t : AllTransitions()) {
    EXPECT_TRUE(seen.insert({t.from, t.to}).second) << Name(t.from) << " to " << Name(t.to);
    EXPECT_NE(t.from, t.to);
    EXPECT_FALSE(t.why.empty());
    EXPECT_TRUE(IsTransition(t.from, t.to));
  }
}

TEST(JobStateTest, Ends_AreEndsAndEveryOtherStateCanFail) {
  for (JobState from : kAll) {
    for (JobState to : kAll) {
      if (IsEnd(from)) {
        EXPECT_FALSE(IsTransition(from, to));
      }
    }
    EXPECT_EQ(IsTransition(from, JobState::kFailed), !IsEnd(from)) << Name(from);
  }
}

// A round begins only from the state in which every node was waited for, or is taken up as it runs.
TEST(JobStateTest, Running_IsReachedByStoppingOrRecoveryOnly) {
  for (JobState from : kAll) {
    const bool allowed = from == JobState::kStopping || from == JobState::kRecovering;
    EXPECT_EQ(IsTransition(from, JobState::kRunning), allowed) << Name(from);
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
