#include "rendezvous/core/phrases.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "rendezvous/core/failure_text.h"
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

}  // namespace
}  // namespace ddprun::rendezvous
