#ifndef DDPRUN_TESTS_RENDEZVOUS_SERVER_SAMPLES_H_
#define DDPRUN_TESTS_RENDEZVOUS_SERVER_SAMPLES_H_

#include <string>

#include "rendezvous/core/messages.h"

// Messages with a value in every field, for tests.
namespace ddprun::rendezvous {

inline JobSettings SampleSettings() {
  JobSettings settings;
  settings.min_nodes = 2;
  settings.max_nodes = 4;
  settings.max_restarts = 3;
  settings.join_timeout = absl::Minutes(7) + absl::Nanoseconds(5);
  settings.last_call = absl::Milliseconds(1250);
  settings.heartbeat_timeout = absl::Seconds(6);
  settings.reconnect_grace = absl::Milliseconds(70);
  settings.restart_window = absl::Hours(1);
  settings.restart_backoff = absl::Milliseconds(250);
  settings.max_failures_at_step = 0;
  settings.node_cooldown = absl::Seconds(90);
  return settings;
}

inline WorkerFailure SampleFailure() {
  WorkerFailure failure;
  failure.host = "node7";
  failure.rank = 5;
  failure.local_rank = 1;
  failure.pid = 4711;
  failure.exit_code = 3;
  failure.signal = 9;
  failure.restartable = false;
  failure.oom_killed = true;
  failure.at = absl::FromUnixSeconds(1'700'000'000) + absl::Nanoseconds(123'456'789);
  failure.ran_for = absl::Seconds(12) + absl::Nanoseconds(1);
  failure.message = "RuntimeError: it broke";
  failure.traceback = "Traceback:\n  line 1\n  \xC3\xA4";
  failure.error_file = "/run/errors/5.json";
  failure.progress = "last reported step 120, 350ms before";
  failure.step = 120;
  return failure;
}

inline Assignment SampleAssignment() {
  Assignment assignment;
  assignment.round = 8;
  assignment.group_rank = 1;
  assignment.group_world_size = 3;
  assignment.base_rank = 4;
  assignment.world_size = 12;
  assignment.base_role_rank = 2;
  assignment.role_world_size = 6;
  assignment.master_addr = "10.0.0.7";
  assignment.master_port = 40123;
  assignment.master_host = "node7";
  assignment.store_secret = "0123456789abcdef";
  assignment.restart_count = 2;
  assignment.reason = "restart 2 of 3";
  assignment.keeps_workers = true;
  assignment.state_source = 11;
  assignment.state_step = int64_t{1} << 40;
  assignment.server_node = 2;
  return assignment;
}

inline Verdict SampleVerdict() {
  Verdict verdict;
  verdict.succeeded = false;
  verdict.reason = "rank 5 on node7 was killed";
  verdict.first_cause = SampleFailure();
  verdict.exit_code = 137;
  return verdict;
}

inline Join SampleJoin() {
  Join join;
  join.job_id = "job-1";
  join.node_id = "00ff";
  join.incarnation = 3;
  join.host = "node7";
  join.address = "10.0.0.7";
  join.store_port = 40001;
  join.store_secret = "fedcba9876543210";
  join.slots = 8;
  join.role = "trainer";
  join.node_rank = 2;
  join.topology = "switch1.rack3";
  join.settings = SampleSettings();
  join.phase = Join::Phase::kRunning;
  join.current = SampleAssignment();
  join.heartbeat_timeout = absl::Seconds(12);
  join.in_touch = true;
  join.survivors = {{0, 0}, {6, std::nullopt}, {7, int64_t{1} << 40}};
  join.can_reform = true;
  join.protocol_version = 7;
  join.session_secret = std::string(
      "0123456789\0\xFF"
      "abcd",
      16);
  return join;
}

inline Waiting SampleWaiting() {
  Waiting waiting;
  waiting.spare = true;
  waiting.nodes_joined = 2;
  waiting.min_nodes = 3;
  waiting.max_nodes = 4;
  waiting.hosts = {"node1", "node7"};
  waiting.remaining = absl::Seconds(29);
  waiting.last_call = true;
  waiting.reason = "node2 was lost";
  return waiting;
}

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_SERVER_SAMPLES_H_
