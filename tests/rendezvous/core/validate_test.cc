#include "rendezvous/core/validate.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rendezvous/core/limits.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Join Good() {
  Join join = TextProto("job_id: 'job' node_id: 'n' host: 'h' address: '10.0.0.1' store_port: 1234", NewJoin());
  join.mutable_settings()->set_max_nodes(4);
  join.set_session_secret(std::string(kMinSecretBytes, 's'));
  return join;
}

Assignment Taken() {
  return TextProto<Assignment>(
      "round: 1 group_world_size: 2 world_size: 4 role_world_size: 4 master_addr: '10.0.0.1' master_port: 1234");
}

std::string Problem(const Join& join) {
  LauncherMessage message = join;
  return std::string(Validate(&message).message());
}

// A good message with the fields of each text is refused with one line that names the first of them. `put` makes it
// part of a Join.
template <typename Part>
void ExpectRefused(const std::string& prefix, const Part& good, auto put, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    SCOPED_TRACE(text.substr(0, 100));
    Join join = Good();
    put(&join, TextProto(text, good));
    EXPECT_THAT(Problem(join),
                AllOf(HasSubstr(prefix + text.substr(0, text.find_first_of(": "))), Not(HasSubstr("\n"))));
  }
}

std::string Long(const std::string& field, size_t bytes) { return field + ": '" + std::string(bytes, 'x') + "'"; }

TEST(ValidateJoinTest, Good_IsTaken) {
  EXPECT_EQ(Problem(Good()), "");
  Join join = Good();
  join.set_phase(Join::PHASE_RUNNING);
  *join.mutable_current() = Taken();
  join.set_store_port(0);  // not needed before its Ready
  EXPECT_EQ(Problem(join), "");
}

TEST(ValidateJoinTest, Bounds_NameTheField) {
  const auto replace = [](Join* join, const Join& changed) { *join = changed; };
  ExpectRefused("join.", Good(), replace,
                {"job_id: ''",
                 "node_id: ''",
                 "host: ''",
                 "address: ''",
                 "incarnation: 0",
                 "slots: 0",
                 "slots: 4097",
                 "store_port: 0",
                 "store_port: 65536",
                 "node_rank: 4",
                 "node_rank: -1",
                 "survivors { local_rank: -1 }",
                 "survivors { local_rank: 1 } slots: 1",
                 R"(job_id: "two\nlines")",
                 R"(host: "\x1b[2J")",
                 R"(address: "a\302\2331")",
                 Long("job_id", 257),
                 Long("host", 257),
                 Long("role", 257),
                 Long("topology", 4097),
                 Long("session_secret", kMinSecretBytes - 1),
                 Long("session_secret", kMaxSecretBytes + 1),
                 Long("store_secret", kMaxSecretBytes + 1)});
  ExpectRefused("join.current: is missing", Good(), replace, {" phase: PHASE_RUNNING", " survivors { local_rank: 0 }"});
  Join join = Good();
  join.set_host("\xFF");  // no text format has it
  EXPECT_THAT(Problem(join), HasSubstr("join.host"));
}

TEST(ValidateJoinTest, Settings_AreCheckedToo) {
  const std::string forever = absl::StrCat(" { ", FromDuration(absl::InfiniteDuration()).ShortDebugString(), " }");
  ExpectRefused(
      "join.settings.", Good().settings(),
      [](Join* join, const JobSettings& changed) { *join->mutable_settings() = changed; },
      {"min_nodes: 0", "min_nodes: 5", "max_nodes: 100001", "max_restarts: -1",
       absl::StrCat("max_restarts: ", kMaxRestarts + 1), "restart_window { seconds: -1 }", "restart_backoff" + forever,
       "node_cooldown { seconds: -1 }", "max_failures_at_step: -1", "join_timeout { seconds: -1 }",
       "last_call" + forever, "heartbeat_timeout { }", "reconnect_grace { seconds: -1 }"});
}

TEST(ValidateJoinTest, Current_IsCheckedToo) {
  ExpectRefused("join.current.", Taken(),
                [](Join* join, const Assignment& changed) { *join->mutable_current() = changed; },
                {"round: 0", "group_rank: 2", "group_rank: -1", absl::StrCat("group_world_size: ", kMaxNodes + 1),
                 "group_world_size: 0", "world_size: 0", "base_rank: 4", "base_role_rank: -1", "role_world_size: 5",
                 "master_addr: ''", "master_port: 0", "restart_count: -1", "state_source: 4", "state_step: -1",
                 Long("reason", 9000)});
}

TEST(FitTextTest, FitText_LongText_KeepsWholeCharacters) {
  EXPECT_EQ(FitText("\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", 100), "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80");
  EXPECT_EQ(FitText("\xC3\xA4\xC3\xA4\xC3\xA4", 5), "\xC3\xA4...");
  EXPECT_EQ(FitText("\xC0\x80\xED\xA0\x80\xF4\x90\x80\x80"
                    "a",
                    100),
            "?????????a");  // overlong, surrogate, too great
  EXPECT_EQ(FitText("", 5), "");
}

}  // namespace
}  // namespace ddprun::rendezvous
