#include "rendezvous/core/phrases.h"

#include "gtest/gtest.h"

namespace ddprun::rendezvous {
namespace {

WorkerFailure Failure() {
  WorkerFailure f = NewFailure();
  f.set_host("node-b");
  f.set_rank(3);
  f.set_local_rank(1);
  f.set_pid(77);
  f.set_exit_code(7);
  return f;
}

TEST(PhrasesTest, GivingUp_SaysWhy) {
  const WorkerFailure f = Failure();
  const std::string who = "rank 3 on node-b (local rank 1, pid 77) exited with code 7; ";
  EXPECT_EQ(DescribeGivingUp(f, 0, absl::ZeroDuration()), who + "restarts are disabled (--max-restarts 0)");
  EXPECT_EQ(DescribeGivingUp(f, 1, absl::ZeroDuration()), who + "restart limit reached (1/1)");
  EXPECT_EQ(DescribeGivingUp(f, 3, absl::Hours(1)), who + "restart limit reached (3/3 within 1h)");
  EXPECT_EQ(DescribeGivingUp(f, 3, absl::ZeroDuration()), who + "restart limit reached (3/3)");
  WorkerFailure final = f;
  final.set_restartable(false);
  final.set_exit_code(78);
  EXPECT_EQ(DescribeGivingUp(final, 3, absl::ZeroDuration()),
            "rank 3 on node-b (local rank 1, pid 77) exited with 78 (non-restartable)");
  final.set_pid(0);
  EXPECT_EQ(DescribeGivingUp(final, 3, absl::ZeroDuration()),
            "rank 3 on node-b (local rank 1) was not started; non-restartable");
}

TEST(PhrasesTest, Lists_ReadLikeSentences) {
  EXPECT_EQ(HostList({"a"}, 1), "a");
  EXPECT_EQ(HostList({"a", "b", "c"}, 3), "a, b and c");
  EXPECT_EQ(HostList({"a", "b"}, 7), "a, b and 5 more");
}

TEST(PhrasesTest, HeldUp_SaysWhatTheRoundWaitsFor) {
  HeldUp held_up{.by_unknown = true};
  EXPECT_EQ(DescribeHeldUp("last call ended with 2 nodes", held_up),
            "last call ended with 2 nodes; workers of a round before the server started may still run");
  held_up = {.by_gone = true};
  EXPECT_EQ(DescribeHeldUp("", held_up), "workers of nodes that are gone may still run");
  held_up = {.by_backoff = true};
  EXPECT_EQ(DescribeHeldUp("node a lost", held_up), "node a lost; waiting for the restart backoff");
  // What people can do something about comes first.
  held_up = {.hosts = {"a", "b"}, .all_hosts = 3, .by_gone = true};
  EXPECT_EQ(DescribeHeldUp("node c lost", held_up), "node c lost; waiting for workers to stop on a, b and 1 more");
  EXPECT_EQ(DescribeHeldUp("node c lost", HeldUp{}), "node c lost");
}

TEST(PhrasesTest, JoinTimeout_NamesWhoCame) {
  JobSettings settings = DefaultSettings();
  settings.set_min_nodes(3);
  *settings.mutable_join_timeout() = FromDuration(absl::Minutes(1));
  EXPECT_EQ(DescribeJoinTimeout(settings, absl::Minutes(1), 2, {"a", "b"}, ""),
            "timed out: 2 of 3 nodes joined within 1m: a and b");
  EXPECT_EQ(DescribeJoinTimeout(settings, absl::Minutes(1), 1, {"a"}, "node b left"),
            "timed out: 1 of 3 nodes joined within 1m: a (node b left)");
}

}  // namespace
}  // namespace ddprun::rendezvous
