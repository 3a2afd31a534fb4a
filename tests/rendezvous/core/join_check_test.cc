#include "rendezvous/core/join_check.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "rendezvous/core/limits.h"

namespace ddprun::rendezvous {
namespace {

Join Good() {
  Join join;
  join.job_id = "job";
  join.node_id = "n";
  join.host = "h";
  join.address = "10.0.0.1";
  join.store_port = 1234;
  join.settings.max_nodes = 4;
  return join;
}

Assignment Taken() {
  Assignment a;
  a.round = 1;
  a.group_world_size = 2;
  a.world_size = 4;
  a.role_world_size = 4;
  a.master_addr = "10.0.0.1";
  a.master_port = 1234;
  return a;
}

// What is said of a good Join after `change`; it must name `field`.
template <typename Change>
void ExpectRefused(const std::string& field, Change change) {
  Join join = Good();
  change(&join);
  const auto problem = CheckJoin(join);
  ASSERT_TRUE(problem.has_value()) << field;
  EXPECT_NE(problem->find("Join." + field), std::string::npos) << *problem;
  EXPECT_EQ(problem->find('\n'), std::string::npos);
}

TEST(CheckJoinTest, Good_IsTaken) {
  EXPECT_EQ(CheckJoin(Good()), std::nullopt);
  Join join = Good();
  join.phase = Join::Phase::kRunning;
  join.current = Taken();
  join.store_port = 0;  // not needed before its Ready
  EXPECT_EQ(CheckJoin(join), std::nullopt);
}

TEST(CheckJoinTest, Bounds_NameTheField) {
  ExpectRefused("job_id", [](Join* j) { j->job_id = ""; });
  ExpectRefused("job_id", [](Join* j) { j->job_id.assign(257, 'x'); });
  ExpectRefused("node_id", [](Join* j) { j->node_id = ""; });
  ExpectRefused("host", [](Join* j) { j->host = ""; });
  ExpectRefused("host", [](Join* j) { j->host.assign(257, 'x'); });
  ExpectRefused("address", [](Join* j) { j->address = ""; });
  ExpectRefused("role", [](Join* j) { j->role.assign(257, 'x'); });
  ExpectRefused("topology", [](Join* j) { j->topology.assign(4097, 'x'); });
  ExpectRefused("job_id", [](Join* j) { j->job_id = "two\nlines"; });
  ExpectRefused("host", [](Join* j) { j->host = "\x1b[2J"; });
  ExpectRefused("host", [](Join* j) { j->host = "\xFF"; });
  ExpectRefused("address", [](Join* j) {
    j->address =
        "a\xC2\x9B"
        "1";
  });
  ExpectRefused("session_secret", [](Join* j) { j->session_secret.assign(kMinSecretBytes - 1, 'x'); });
  ExpectRefused("session_secret", [](Join* j) { j->session_secret.assign(kMaxSecretBytes + 1, 'x'); });
  ExpectRefused("store_secret", [](Join* j) { j->store_secret.assign(kMaxSecretBytes + 1, 'x'); });
  ExpectRefused("incarnation", [](Join* j) { j->incarnation = 0; });
  ExpectRefused("survivors", [](Join* j) { j->survivors = {{j->slots}}; });
  ExpectRefused("survivors", [](Join* j) { j->survivors = {{-1}}; });
  ExpectRefused("current is missing; it must be given with Join.survivors", [](Join* j) { j->survivors = {{0}}; });
  ExpectRefused("slots", [](Join* j) { j->slots = 0; });
  ExpectRefused("slots", [](Join* j) { j->slots = 4097; });
  ExpectRefused("store_port", [](Join* j) { j->store_port = 0; });
  ExpectRefused("store_port", [](Join* j) { j->store_port = 65536; });
  ExpectRefused("node_rank", [](Join* j) { j->node_rank = 4; });
  ExpectRefused("node_rank", [](Join* j) { j->node_rank = -1; });
  ExpectRefused("settings.min_nodes", [](Join* j) { j->settings.min_nodes = 0; });
  ExpectRefused("settings.min_nodes", [](Join* j) { j->settings.min_nodes = 5; });
  ExpectRefused("settings.max_nodes", [](Join* j) { j->settings.max_nodes = 100'001; });
  ExpectRefused("settings.max_restarts", [](Join* j) { j->settings.max_restarts = -1; });
  ExpectRefused("settings.max_restarts", [](Join* j) { j->settings.max_restarts = kMaxRestarts + 1; });
  ExpectRefused("settings.restart_window", [](Join* j) { j->settings.restart_window = absl::Seconds(-1); });
  ExpectRefused("settings.restart_backoff", [](Join* j) { j->settings.restart_backoff = absl::InfiniteDuration(); });
  ExpectRefused("settings.node_cooldown", [](Join* j) { j->settings.node_cooldown = absl::Seconds(-1); });
  ExpectRefused("settings.max_failures_at_step", [](Join* j) { j->settings.max_failures_at_step = -1; });
  ExpectRefused("settings.join_timeout", [](Join* j) { j->settings.join_timeout = absl::Seconds(-1); });
  ExpectRefused("settings.last_call", [](Join* j) { j->settings.last_call = absl::InfiniteDuration(); });
  ExpectRefused("settings.heartbeat_timeout", [](Join* j) { j->settings.heartbeat_timeout = absl::ZeroDuration(); });
  ExpectRefused("settings.reconnect_grace", [](Join* j) { j->settings.reconnect_grace = absl::Seconds(-1); });
}

TEST(CheckJoinTest, Current_IsCheckedToo) {
  ExpectRefused("current", [](Join* j) { j->phase = Join::Phase::kRunning; });
  const auto with = [](auto change) {
    return [change](Join* j) {
      j->current = Taken();
      change(&*j->current);
    };
  };
  ExpectRefused("current.round", with([](Assignment* a) { a->round = 0; }));
  ExpectRefused("current.group_rank", with([](Assignment* a) { a->group_rank = 2; }));
  ExpectRefused("current.group_rank", with([](Assignment* a) { a->group_rank = -1; }));
  ExpectRefused("current.group_world_size", with([](Assignment* a) { a->group_world_size = kMaxNodes + 1; }));
  ExpectRefused("current.group_world_size", with([](Assignment* a) { a->group_world_size = 0; }));
  ExpectRefused("current.world_size", with([](Assignment* a) { a->world_size = 0; }));
  ExpectRefused("current.base_rank", with([](Assignment* a) { a->base_rank = 4; }));
  ExpectRefused("current.base_role_rank", with([](Assignment* a) { a->base_role_rank = -1; }));
  ExpectRefused("current.role_world_size", with([](Assignment* a) { a->role_world_size = 5; }));
  ExpectRefused("current.master_addr", with([](Assignment* a) { a->master_addr = ""; }));
  ExpectRefused("current.master_port", with([](Assignment* a) { a->master_port = 0; }));
  ExpectRefused("current.restart_count", with([](Assignment* a) { a->restart_count = -1; }));
  ExpectRefused("current.state_source", with([](Assignment* a) { a->state_source = 4; }));
  ExpectRefused("current.state_step", with([](Assignment* a) { a->state_step = -1; }));
  ExpectRefused("current.reason", with([](Assignment* a) { a->reason.assign(9000, 'x'); }));
}

// Protocol 2.1.
TEST(CheckSurvivorsTest, Bounds_SayWhatIsWrong) {
  const auto problem = [](std::vector<Survivor> survivors) { return CheckSurvivors(survivors, 4).value_or(""); };
  EXPECT_EQ(problem({}), "");
  EXPECT_EQ(problem({{0, 0}, {1}, {3, 7}}), "");
  EXPECT_EQ(problem({{4}}), "has local rank 4; it must be 0 to 3");
  EXPECT_EQ(problem({{-1}}), "has local rank -1; it must be 0 to 3");
  EXPECT_EQ(problem({{1}, {1}}), "has local rank 1 after 1; they must ascend");
  EXPECT_EQ(problem({{2}, {1}}), "has local rank 1 after 2; they must ascend");
  EXPECT_EQ(problem({{2, -1}}), "has step -1 of local rank 2; it must not be negative");
}

TEST(CheckSameSettingsTest, Difference_NamesBothValuesAndHosts) {
  JobSettings a, b;
  EXPECT_EQ(CheckSameSettings("x", "node-a", a, "node-b", b), std::nullopt);
  b.max_restarts = 3;
  EXPECT_EQ(CheckSameSettings("x", "node-a", a, "node-b", b),
            "--max-restarts is 3 on node-b but 0 on node-a; all nodes of job \"x\" must use the same value");
}

TEST(BoundedTest, LongTexts_AreCutBetweenCharacters) {
  EXPECT_EQ(Bounded("abc", 3), "abc");
  EXPECT_EQ(Bounded("abcd", 3), "abc");
  EXPECT_EQ(Bounded("ab\xc3\xa4", 3), "ab");         // two bytes
  EXPECT_EQ(Bounded("a\xf0\x9f\x98\x80z", 4), "a");  // four bytes
  EXPECT_EQ(Bounded("\x80\x80\x80\x80", 2), "");     // no text at all
  WorkerFailure failure;
  failure.traceback.assign(1'000'000, 'x');
  failure.message.assign(1'000'000, 'x');
  failure.progress.assign(1'000'000, 'x');
  failure = Bounded(std::move(failure));
  EXPECT_EQ(failure.progress.size(), kMaxTextBytes);
  EXPECT_EQ(failure.traceback.size(), kMaxTracebackBytes);
  EXPECT_EQ(failure.message.size(), kMaxTextBytes);
}

}  // namespace
}  // namespace ddprun::rendezvous
