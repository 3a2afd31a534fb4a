#include "launcher/capsule/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/core/messages.h"
#include "tests/testing/text_proto.h"

namespace ddprun::launcher {
namespace {

using capsule::v1::Node;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Explained(std::vector<Node> nodes) { return ExplainCapsule(std::move(nodes), absl::UTCTimeZone()); }

constexpr char kNodeA[] = R"pb(
  version: "1.2.3"
  job: "job7"
  host: "node-a"
  slots: 1
  assignment { round: 3 group_rank: 0 group_world_size: 2 base_rank: 0 world_size: 2 restart_count: 2 }
  began { seconds: 1700000000 }
  at { seconds: 1700000012 nanos: 500000000 }
  failure {
    verdict {
      reason: "rank 1 on node-b (local rank 0, pid 77) exited with code 5: no data; restart limit reached (2/2)"
      first_cause {
        host: "node-b"
        rank: 1
        local_rank: 0
        pid: 77
        exit_code: 5
        restartable: true
        message: "no data"
        traceback: "Traceback (most recent call last):\n  File \"x.py\", line 1"
      }
      exit_code: 5
    }
    hint: "check the data"
    hang: "no progress for 30s: rank 0 waits for rank 1"
  }
  job_ended: true
  decided: true
  ranks {
    rank: 0
    pid: 66
    at { seconds: 1700000012 nanos: 400000000 }
    stopped: true
    failure { host: "node-a" rank: 0 local_rank: 0 pid: 66 signal: 15 progress: "step 7" restartable: true }
    files: "rank-0.stderr"
    files: "rank-0.stack"
  }
  events {
    at { seconds: 1700000000 }
    text: "round 3: node-a is node 0 of 2"
  }
  events {
    at { seconds: 1700000012 nanos: 100000000 }
    text: "stopping this node's workers"
  }
  command: "ddprun --nnodes=2 train.py"
  folder: "/home/me"
  versions: "kernel 6.1"
)pb";

constexpr char kNodeB[] = R"pb(
  version: "1.2.3"
  job: "job7"
  host: "node-b"
  slots: 1
  assignment { round: 3 group_rank: 1 group_world_size: 2 base_rank: 1 world_size: 2 restart_count: 2 }
  began { seconds: 1700000000 }
  at { seconds: 1700000012 nanos: 200000000 }
  failure { verdict { first_cause { host: "node-b" rank: 1 pid: 77 local_rank: 0 exit_code: 5 restartable: true } } }
  ranks {
    rank: 1
    pid: 77
    at { seconds: 1700000012 }
    failure { host: "node-b" rank: 1 local_rank: 0 pid: 77 exit_code: 5 message: "no data" restartable: true }
  }
  command: "ddprun --nnodes=2 train.py"
  folder: "/home/me"
  versions: "kernel 6.1"
)pb";

TEST(ExplainCapsule, TwoNodesInAnyOrder_CauseTimelineRanksAndSettings) {
  EXPECT_EQ(Explained({TextProto<Node>(kNodeB), TextProto<Node>(kNodeA)}),
            "Job job7, round 3: 2 ranks on 2 nodes, restart 2; began 2023-11-14 22:13:20, ended after 12.5s\n"
            "\n"
            "First cause: rank 1 on node-b (local rank 0, pid 77) exited with code 5: no data\n"
            "The job failed: restart limit reached (2/2)\n"
            "Before the end: no progress for 30s: rank 0 waits for rank 1\n"
            "Hint: check the data\n"
            "    Traceback (most recent call last):\n"
            "      File \"x.py\", line 1\n"
            "\n"
            "What happened, by the clock of each host:\n"
            "  22:13:20.000  node-a  round 3: node-a is node 0 of 2\n"
            "  22:13:32.000  node-b  rank 1 on node-b (local rank 0, pid 77) exited with code 5: no data\n"
            "  22:13:32.100  node-a  stopping this node's workers\n"
            "\n"
            "Ranks, with their files rank-N.* in the capsule:\n"
            "  rank 0 on node-a: stopped by the launcher: was killed by SIGTERM; step 7 (stderr, stack)\n"
            "  rank 1 on node-b: first cause: exited with code 5: no data\n"
            "\n"
            "Settings (environment: node-N.txtpb):\n"
            "  on node-a, node-b\n"
            "  ddprun 1.2.3, kernel 6.1\n"
            "  in /home/me: ddprun --nnodes=2 train.py\n");
}

TEST(ExplainCapsule, TwoNodesOfOneHost_NamedOnce) {
  Node b = TextProto<Node>(kNodeB);
  b.set_host("node-a");
  EXPECT_THAT(Explained({TextProto<Node>(kNodeA), b}), HasSubstr("\n  on node-a\n"));
}

TEST(ExplainCapsule, RanksWithTheSameEnd_ShareALine) {
  Node a = TextProto<Node>(kNodeA);
  for (const int rank : {2, 3, 5}) {
    *a.add_ranks() = a.ranks(0);
    a.mutable_ranks(a.ranks_size() - 1)->set_rank(rank);
  }
  a.mutable_ranks(3)->mutable_failure()->set_progress("step 8");
  EXPECT_THAT(Explained({a}),
              HasSubstr("  ranks 0, 2-3 on node-a: stopped by the launcher: was killed by SIGTERM; step 7 "
                        "(stderr, stack)\n  rank 5 on node-a: stopped by the launcher: was killed by "
                        "SIGTERM; step 8 (stderr, stack)\n"));
}

TEST(ExplainCapsule, NodeWithoutFile_IsNamedWithItsRanks) {
  const std::string text = Explained({TextProto<Node>(kNodeA)});
  EXPECT_THAT(text, AllOf(HasSubstr("First cause: rank 1 on node-b"),
                          HasSubstr("\nMissing: node 1 of 2, with rank 1: the launcher was lost, or ")));
  EXPECT_THAT(Explained({TextProto<Node>(kNodeA), TextProto<Node>(kNodeB)}), Not(HasSubstr("Missing")));
}

TEST(ExplainCapsule, NodesDisagree_LikelierCauseOrServerCounts) {
  // Without the server, each node names its own worker: rank 0 lost its peers.
  Node a = TextProto<Node>(kNodeA), b = TextProto<Node>(kNodeB);
  a.set_decided(false);
  a.set_job_ended(false);
  rendezvous::WorkerFailure& own = *a.mutable_failure()->mutable_verdict()->mutable_first_cause();
  own = TextProto<rendezvous::WorkerFailure>(
      "host: 'node-a' rank: 0 pid: 66 exit_code: 1 restartable: true message: 'Connection reset by peer'");
  *a.mutable_ranks(0)->mutable_failure() = own;
  a.mutable_ranks(0)->set_stopped(false);
  b.mutable_failure()->mutable_verdict()->mutable_first_cause()->set_message("no data");
  const std::string text = Explained({a, b});
  EXPECT_THAT(text, AllOf(HasSubstr("First cause: rank 1 on node-b"), HasSubstr("\nThe round ended\n"),
                          HasSubstr("rank 0 on node-a: lost its peers: exited with code 1: Connection reset")));
  a.set_decided(true);
  EXPECT_THAT(Explained({a, b}), HasSubstr("First cause: rank 0 on node-a"));
}

TEST(ExplainCapsule, NoRound_TellsReasonAndLog) {
  const std::string text = Explained({TextProto<Node>(
      "job: 'job7' host: 'node-a' job_ended: true failure { verdict { reason: 'timed out: 1 of 2 nodes joined' } }"
      "events { at { seconds: 1700000000 } text: 'waiting for 1 more node' }")});
  EXPECT_THAT(text, AllOf(StartsWith("Job job7, before its first round\n\nThe job failed: timed out: 1 of 2 nodes"),
                          HasSubstr("  22:13:20.000  node-a  waiting for 1 more node\n"), Not(HasSubstr("Ranks")),
                          Not(HasSubstr("Missing"))));
}

TEST(ExplainCapsule, HangWithoutFailure_ComesFirstWithStacks) {
  const std::string text =
      Explained({TextProto<Node>("assignment { round: 1 }"),
                 TextProto<Node>("hang: 'rank 0 hangs\\n  in f' failure { hang: 'rank 0 hangs' }")});
  EXPECT_THAT(text, HasSubstr("\n\nHang: rank 0 hangs\nThe round ended\n      in f\n\n"));
}

TEST(ExplainCapsule, HostileText_DoesNotControlTheTerminal) {
  EXPECT_THAT(Explained({TextProto<Node>("job: '\\033[2J' host: '\\007'")}),
              AllOf(Not(HasSubstr("\033")), Not(HasSubstr("\007"))));
}

}  // namespace
}  // namespace ddprun::launcher
