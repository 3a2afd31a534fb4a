#include "launcher/workers/worker_set.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

using State = WorkerSet::State;

WorkerEnd Good(int rank) { return {rank, std::nullopt, std::nullopt}; }
WorkerEnd Bad(int rank) { return {rank, rendezvous::NewFailure(), std::nullopt}; }

TEST(WorkerSetTest, Start_SomeRanks_OthersAreLeftAlone) {
  WorkerSet workers(3);
  EXPECT_EQ(workers.All(), LocalRanks({0, 1, 2}));
  EXPECT_EQ(workers.Alive(), LocalRanks());
  EXPECT_FALSE(workers.AnyAlive());
  EXPECT_TRUE(workers.Quiet());
  EXPECT_FALSE(workers.AllSucceeded()) << "they have not even started";
  workers.Start({0, 2});
  EXPECT_EQ(workers.Alive(), LocalRanks({0, 2}));
  EXPECT_EQ(workers.state(1), State::kNotStarted);
  EXPECT_FALSE(workers.Quiet());
  workers.NotStarted({2});  // not started after all
  EXPECT_EQ(workers.Alive(), LocalRanks({0}));
}

// Replacement of one dead worker: the survivor is unchanged.
TEST(WorkerSetTest, Start_OfOneThatEnded_ForgetsItsEndAndLeavesTheSuspendedOne) {
  WorkerSet workers(2);
  workers.Start({0, 1});
  workers.End(Bad(1));
  workers.Suspend({0});
  EXPECT_FALSE(workers.Quiet()) << "it has not answered";
  EXPECT_TRUE(workers.Suspended(0, 7));
  EXPECT_TRUE(workers.Quiet());
  EXPECT_EQ(workers.Survivors(), std::vector<rendezvous::Survivor>{rendezvous::NewSurvivor(0, 7)});
  EXPECT_TRUE(workers.AnyAlive());
  workers.Start({0, 1});
  EXPECT_EQ(workers.state(0), State::kSuspended) << "it has a process already";
  EXPECT_EQ(workers.state(1), State::kRunning);
  EXPECT_EQ(workers.end(1), nullptr);
  workers.Resume({0, 1});
  EXPECT_EQ(workers.state(0), State::kRunning);
  EXPECT_TRUE(workers.Reforming(0));
  EXPECT_FALSE(workers.Reforming(1)) << "it is new";
  workers.Reformed(0);
  EXPECT_FALSE(workers.Reforming(0));
}

TEST(WorkerSetTest, Suspended_OnlyThoseThatWereTold) {
  WorkerSet workers(2);
  workers.Start({0, 1});
  EXPECT_FALSE(workers.Suspended(0, 7));
  workers.Suspend({0, 1});
  workers.Stop({1});
  EXPECT_FALSE(workers.Suspended(1, 7)) << "it is to end";
  EXPECT_FALSE(workers.Suspended(2, 7));
  EXPECT_EQ(workers.In(State::kSuspending), LocalRanks({0}));
}

TEST(WorkerSetTest, Connected_AwarenessStaysWithTheLocalRank_TheRestWithTheProcess) {
  WorkerSet workers(2);
  workers.Start({0, 1});
  workers.Connected(0, {"progress", "re-form", "checkpoint"});
  workers.Connected(1, {"progress"});
  EXPECT_EQ(workers.CanSuspend(), LocalRanks({0}));
  EXPECT_EQ(workers.CanCheckpoint(), LocalRanks({0}));
  EXPECT_FALSE(workers.CanReform());
  workers.Connected(1, {"re-form"});
  EXPECT_TRUE(workers.CanReform());
  workers.End(Bad(0));
  workers.Start({0});
  EXPECT_TRUE(workers.CanReform());
  EXPECT_EQ(workers.CanSuspend(), LocalRanks({1})) << "the new process has not connected";
  EXPECT_EQ(workers.CanCheckpoint(), LocalRanks());
  workers.Disconnected(1);
  EXPECT_EQ(workers.CanSuspend(), LocalRanks());
  workers.Connected(0, {});
  EXPECT_FALSE(workers.CanReform()) << "it is another program";
  workers.AssumeAware();
  EXPECT_TRUE(workers.CanReform());
}

TEST(WorkerSetTest, Stop_ConcernsThoseAlive) {
  WorkerSet workers(4);
  workers.Start({0, 1, 2});
  workers.Suspend({1});
  workers.Suspended(1, std::nullopt);
  workers.End(Good(2));
  workers.Stop({0, 1, 2, 3});
  EXPECT_EQ(workers.state(0), State::kStopping);
  EXPECT_EQ(workers.state(1), State::kStopping);
  EXPECT_EQ(workers.state(2), State::kEnded);
  EXPECT_EQ(workers.state(3), State::kNotStarted);
  EXPECT_FALSE(workers.Quiet()) << "those that are stopping still compute";
  workers.Suspend({0});
  EXPECT_EQ(workers.state(0), State::kStopping) << "there is no way back";
}

TEST(WorkerSetTest, End_IsKeptAndCountsOnce) {
  WorkerSet workers(2);
  workers.Start({0, 1});
  EXPECT_TRUE(workers.End(Bad(1)));
  EXPECT_FALSE(workers.End(Good(1)));
  ASSERT_NE(workers.end(1), nullptr);
  EXPECT_TRUE(workers.end(1)->failure.has_value());
  EXPECT_FALSE(workers.End(Good(2))) << "there is no such rank";
  EXPECT_FALSE(workers.End(Good(-1)));
}

TEST(WorkerSetTest, AllSucceeded_EachEndedWithZero) {
  WorkerSet workers(2);
  workers.Start({0, 1});
  workers.End(Good(0));
  EXPECT_FALSE(workers.AllSucceeded());
  workers.End(Good(1));
  EXPECT_TRUE(workers.AllSucceeded());
  workers.Start({1});
  workers.End(Bad(1));
  EXPECT_FALSE(workers.AllSucceeded());
}

TEST(WorkerSetTest, Abandon_TheyAreNotAliveAndHowTheyEndedIsNotKnown) {
  WorkerSet workers(2);
  workers.Start({0, 1});
  workers.Stop({0, 1});
  workers.End(Good(0));
  EXPECT_FALSE(workers.AnyStuck());
  workers.Abandon(workers.Alive());
  EXPECT_FALSE(workers.AnyAlive());
  EXPECT_TRUE(workers.AnyStuck());
  EXPECT_NE(workers.end(0), nullptr);
  EXPECT_EQ(workers.end(1), nullptr);
  EXPECT_FALSE(workers.End(Bad(1))) << "it comes too late";
  EXPECT_FALSE(workers.AnyStuck()) << "its process has ended";
}

}  // namespace
}  // namespace ddprun::launcher
