#include "rendezvous/core/validate.h"

#include <string>

#include "gtest/gtest.h"
#include "rendezvous/core/limits.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

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

// A good Join after `change` must be refused with a line that names `field`.
template <typename Change>
void ExpectRefused(const std::string& field, Change change) {
  Join join = Good();
  change(&join);
  const std::string problem = Problem(join);
  EXPECT_NE(problem.find("join." + field), std::string::npos) << problem;
  EXPECT_EQ(problem.find('\n'), std::string::npos);
}

TEST(ValidateJoinTest, Good_IsTaken) {
  EXPECT_EQ(Problem(Good()), "");
  Join join = Good();
  join.set_phase(Join::PHASE_RUNNING);
  *join.mutable_current() = Taken();
  join.set_store_port(0);  // not needed before its Ready
  EXPECT_EQ(Problem(join), "");
}

TEST(ValidateJoinTest, Bounds_NameTheField) {
  ExpectRefused("job_id", [](Join* j) { j->set_job_id(""); });
  ExpectRefused("job_id", [](Join* j) { j->mutable_job_id()->assign(257, 'x'); });
  ExpectRefused("node_id", [](Join* j) { j->set_node_id(""); });
  ExpectRefused("host", [](Join* j) { j->set_host(""); });
  ExpectRefused("host", [](Join* j) { j->mutable_host()->assign(257, 'x'); });
  ExpectRefused("address", [](Join* j) { j->set_address(""); });
  ExpectRefused("role", [](Join* j) { j->mutable_role()->assign(257, 'x'); });
  ExpectRefused("topology", [](Join* j) { j->mutable_topology()->assign(4097, 'x'); });
  ExpectRefused("job_id", [](Join* j) { j->set_job_id("two\nlines"); });
  ExpectRefused("host", [](Join* j) { j->set_host("\x1b[2J"); });
  ExpectRefused("host", [](Join* j) { j->set_host("\xFF"); });
  ExpectRefused("address", [](Join* j) {
    j->set_address(
        "a\xC2\x9B"
        "1");
  });
  ExpectRefused("session_secret", [](Join* j) { j->mutable_session_secret()->assign(kMinSecretBytes - 1, 'x'); });
  ExpectRefused("session_secret", [](Join* j) { j->mutable_session_secret()->assign(kMaxSecretBytes + 1, 'x'); });
  ExpectRefused("store_secret", [](Join* j) { j->mutable_store_secret()->assign(kMaxSecretBytes + 1, 'x'); });
  ExpectRefused("incarnation", [](Join* j) { j->set_incarnation(0); });
  ExpectRefused("survivors", [](Join* j) { *j->add_survivors() = NewSurvivor(j->slots()); });
  ExpectRefused("survivors", [](Join* j) { *j->add_survivors() = NewSurvivor(-1); });
  ExpectRefused("current: is missing", [](Join* j) { *j->add_survivors() = NewSurvivor(0); });
  ExpectRefused("slots", [](Join* j) { j->set_slots(0); });
  ExpectRefused("slots", [](Join* j) { j->set_slots(4097); });
  ExpectRefused("store_port", [](Join* j) { j->set_store_port(0); });
  ExpectRefused("store_port", [](Join* j) { j->set_store_port(65536); });
  ExpectRefused("node_rank", [](Join* j) { j->set_node_rank(4); });
  ExpectRefused("node_rank", [](Join* j) { j->set_node_rank(-1); });
  ExpectRefused("settings.min_nodes", [](Join* j) { j->mutable_settings()->set_min_nodes(0); });
  ExpectRefused("settings.min_nodes", [](Join* j) { j->mutable_settings()->set_min_nodes(5); });
  ExpectRefused("settings.max_nodes", [](Join* j) { j->mutable_settings()->set_max_nodes(100'001); });
  ExpectRefused("settings.max_restarts", [](Join* j) { j->mutable_settings()->set_max_restarts(-1); });
  ExpectRefused("settings.max_restarts", [](Join* j) { j->mutable_settings()->set_max_restarts(kMaxRestarts + 1); });
  ExpectRefused("settings.restart_window",
                [](Join* j) { *j->mutable_settings()->mutable_restart_window() = FromDuration(absl::Seconds(-1)); });
  ExpectRefused("settings.restart_backoff", [](Join* j) {
    *j->mutable_settings()->mutable_restart_backoff() = FromDuration(absl::InfiniteDuration());
  });
  ExpectRefused("settings.node_cooldown",
                [](Join* j) { *j->mutable_settings()->mutable_node_cooldown() = FromDuration(absl::Seconds(-1)); });
  ExpectRefused("settings.max_failures_at_step", [](Join* j) { j->mutable_settings()->set_max_failures_at_step(-1); });
  ExpectRefused("settings.join_timeout",
                [](Join* j) { *j->mutable_settings()->mutable_join_timeout() = FromDuration(absl::Seconds(-1)); });
  ExpectRefused("settings.last_call",
                [](Join* j) { *j->mutable_settings()->mutable_last_call() = FromDuration(absl::InfiniteDuration()); });
  ExpectRefused("settings.heartbeat_timeout", [](Join* j) {
    *j->mutable_settings()->mutable_heartbeat_timeout() = FromDuration(absl::ZeroDuration());
  });
  ExpectRefused("settings.reconnect_grace",
                [](Join* j) { *j->mutable_settings()->mutable_reconnect_grace() = FromDuration(absl::Seconds(-1)); });
}

TEST(ValidateJoinTest, Current_IsCheckedToo) {
  ExpectRefused("current", [](Join* j) { j->set_phase(Join::PHASE_RUNNING); });
  const auto with = [](auto change) {
    return [change](Join* j) {
      *j->mutable_current() = Taken();
      change(j->mutable_current());
    };
  };
  ExpectRefused("current.round", with([](Assignment* a) { a->set_round(0); }));
  ExpectRefused("current.group_rank", with([](Assignment* a) { a->set_group_rank(2); }));
  ExpectRefused("current.group_rank", with([](Assignment* a) { a->set_group_rank(-1); }));
  ExpectRefused("current.group_world_size", with([](Assignment* a) { a->set_group_world_size(kMaxNodes + 1); }));
  ExpectRefused("current.group_world_size", with([](Assignment* a) { a->set_group_world_size(0); }));
  ExpectRefused("current.world_size", with([](Assignment* a) { a->set_world_size(0); }));
  ExpectRefused("current.base_rank", with([](Assignment* a) { a->set_base_rank(4); }));
  ExpectRefused("current.base_role_rank", with([](Assignment* a) { a->set_base_role_rank(-1); }));
  ExpectRefused("current.role_world_size", with([](Assignment* a) { a->set_role_world_size(5); }));
  ExpectRefused("current.master_addr", with([](Assignment* a) { a->set_master_addr(""); }));
  ExpectRefused("current.master_port", with([](Assignment* a) { a->set_master_port(0); }));
  ExpectRefused("current.restart_count", with([](Assignment* a) { a->set_restart_count(-1); }));
  ExpectRefused("current.state_source", with([](Assignment* a) { a->set_state_source(4); }));
  ExpectRefused("current.state_step", with([](Assignment* a) { a->set_state_step(-1); }));
  ExpectRefused("current.reason", with([](Assignment* a) { a->mutable_reason()->assign(9000, 'x'); }));
}

TEST(FitTextTest, KeepsWholeCharacters) {
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
