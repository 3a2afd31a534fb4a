#include "rendezvous/core/phrases.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

TEST(PhrasesTest, GivingUp_EveryReason_IsNamed) {
  const WorkerFailure f = TextProto("host: 'node-b' rank: 3 local_rank: 1 pid: 77 exit_code: 7", NewFailure());
  const std::string who = DescribeFailure(f) + "; ";
  EXPECT_EQ(DescribeGivingUp(f, 0, absl::ZeroDuration()), who + "restarts are disabled (--max-restarts 0)");
  EXPECT_EQ(DescribeGivingUp(f, 3, absl::Hours(1)), who + "restart limit reached (3/3 within 1h)");
  EXPECT_EQ(DescribeGivingUp(f, 3, absl::ZeroDuration()), who + "restart limit reached (3/3)");
  const WorkerFailure final = TextProto("restartable: false exit_code: 78", f);
  EXPECT_EQ(DescribeGivingUp(final, 3, absl::ZeroDuration()), DescribeFailure(final));
  EXPECT_EQ(DescribeGivingUp(TextProto("pid: 0", final), 3, absl::ZeroDuration()),
            "rank 3 on node-b (local rank 1) was not started; non-restartable");
}

TEST(PhrasesTest, Lists_ReadLikeSentences) {
  EXPECT_EQ(HostList({"a"}, 1), "a");
  EXPECT_EQ(HostList({"a", "b", "c"}, 3), "a, b and c");
  EXPECT_EQ(HostList({"a", "b"}, 7), "a, b and 5 more");
}

TEST(PhrasesTest, HeldUp_RoundWaits_NamesReason) {
  const std::pair<HeldUp, const char*> cases[] = {
      {{.by_unknown = true}, "; workers of a round before the server started may still run"},
      {{.by_gone = true}, "; workers of nodes that are gone may still run"},
      {{.by_backoff = true}, "; waiting for the restart backoff"},
      // Causes that users can act on come first.
      {{.hosts = {"a", "b"}, .all_nodes = 3, .by_gone = true}, "; waiting for workers to stop on a, b and 1 more"},
      {{}, ""}};
  for (const auto& [held_up, text] : cases) {
    EXPECT_EQ(DescribeHeldUp("node c lost", held_up), absl::StrCat("node c lost", text));
  }
  EXPECT_EQ(DescribeHeldUp("", {.by_gone = true}), "workers of nodes that are gone may still run");
}

TEST(PhrasesTest, JoinTimeout_NamesWhoCame) {
  const JobSettings settings = TextProto("min_nodes: 3 join_timeout { seconds: 60 }", DefaultSettings());
  EXPECT_EQ(DescribeJoinTimeout(settings, absl::Minutes(1), 2, {"a", "b"}, ""),
            "timed out: 2 of 3 nodes joined within 1m: a and b");
  EXPECT_EQ(DescribeJoinTimeout(settings, absl::Minutes(1), 1, {"a"}, "node b left"),
            "timed out: 1 of 3 nodes joined within 1m: a (node b left)");
}

const WorkerFailure& Failure() {
  static const WorkerFailure failure =
      TextProto("host: 'node-b' rank: 3 local_rank: 1 pid: 77 exit_code: 3", NewFailure());
  return failure;
}

TEST(DescribeFailure, DescribeFailure_Worker_NamesRankAndCause) {
  constexpr char kWho[] = "rank 3 on node-b (local rank 1, pid 77)";
  EXPECT_EQ(DescribeFailure(Failure()), absl::StrCat(kWho, " exited with code 3"));
  EXPECT_EQ(
      DescribeFailure(TextProto("pid: 0 restartable: false exit_code: 127 message: 'no such script: x.py'", Failure())),
      "rank 3 on node-b (local rank 1) was not started: no such script: x.py");
  // How it ended, of failures with these fields.
  const struct {
    const char* failure;
    const char* end;
  } cases[] = {
      {R"(message: "ValueError: bad\nsecond line")", "exited with code 3: ValueError: bad second line"},
      {"message: 'exited with code 3'", "exited with code 3"},
      {R"(progress: "last reported step 120,\n3s before")", "exited with code 3; last reported step 120, 3s before"},
      {"message: 'ValueError' progress: 'last reported step 120'",
       "exited with code 3: ValueError; last reported step 120"},
      {"signal: 9", "was killed by SIGKILL"},
      {"signal: 9 oom_killed: true", "was killed by SIGKILL (OOM-killed)"},
      {"exit_code: 0 message: 'connection reset'", "reported a failure: connection reset"},
      {"signal: 24", "was killed by SIGXCPU (limit of CPU time, ulimit -t)"},
      {"signal: 25", "was killed by SIGXFSZ (limit of file size, ulimit -f)"},
      // A worker's own.
      {"exit_code: 126", "exited with code 126 (in shells: can't execute a command)"},
      {"exit_code: 127", "exited with code 127 (in shells: command not found)"},
      {"exit_code: 128", "exited with code 128"},
      {"exit_code: 137", "exited with code 137 (in shells: SIGKILL)"},
      {"exit_code: 255", "exited with code 255"},
      {"exit_code: 78 restartable: false message: 'no data'", "exited with 78 (non-restartable): no data"}};
  for (const auto& [failure, end] : cases) {
    EXPECT_EQ(DescribeFailure(TextProto(failure, Failure())), absl::StrCat(kWho, " ", end));
  }
}

TEST(DescribeFailure, DescribeFailure_NeverStarted_NamesReason) {
  const WorkerFailure failure = TextProto("pid: 0 restartable: false", Failure());
  for (const auto& [code, end] : {std::pair(kExitNotFound, "was not started: no such program"),
                                  std::pair(kExitCannotExecute, "was not started: cannot execute the program"),
                                  std::pair(1, "was not started")}) {
    EXPECT_EQ(DescribeEnd(TextProto(absl::StrCat("exit_code: ", code), failure)), end);
  }
}

TEST(DescribeFailure, DescribeFailure_LostNode_NamesNode) {
  const WorkerFailure failure = TextProto("host: 'node-b' message: 'no heartbeat for 3 s'", NewFailure());
  EXPECT_EQ(DescribeFailure(failure), "node node-b was lost: no heartbeat for 3 s");
  EXPECT_EQ(DescribeWho(TextProto("host: ''", failure)), "node an unknown host");
}

TEST(ExitStatus, OfAFailureWithoutAnExit_IsNotZero) {
  EXPECT_EQ(ExitStatus(TextProto("exit_code: 0", Failure())), 1) << "a job that it brings down has not succeeded";
}

}  // namespace
}  // namespace ddprun::rendezvous
