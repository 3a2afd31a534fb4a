#ifndef DDPRUN_TESTS_RENDEZVOUS_SERVER_SAMPLES_H_
#define DDPRUN_TESTS_RENDEZVOUS_SERVER_SAMPLES_H_

#include <string>

#include "rendezvous/core/messages.h"

// Messages with a value in every field, for tests.
namespace ddprun::rendezvous {

inline JobSettings SampleSettings() {
  JobSettings settings = DefaultSettings();
  settings.set_min_nodes(2);
  settings.set_max_nodes(4);
  settings.set_max_restarts(3);
  *settings.mutable_join_timeout() = FromDuration(absl::Minutes(7) + absl::Nanoseconds(5));
  *settings.mutable_last_call() = FromDuration(absl::Milliseconds(1250));
  *settings.mutable_heartbeat_timeout() = FromDuration(absl::Seconds(6));
  *settings.mutable_reconnect_grace() = FromDuration(absl::Milliseconds(70));
  *settings.mutable_restart_window() = FromDuration(absl::Hours(1));
  *settings.mutable_restart_backoff() = FromDuration(absl::Milliseconds(250));
  settings.set_max_failures_at_step(0);
  *settings.mutable_node_cooldown() = FromDuration(absl::Seconds(90));
  return settings;
}

inline WorkerFailure SampleFailure() {
  WorkerFailure failure = NewFailure();
  failure.set_host("node7");
  failure.set_rank(5);
  failure.set_local_rank(1);
  failure.set_pid(4711);
  failure.set_exit_code(3);
  failure.set_signal(9);
  failure.set_restartable(false);
  failure.set_oom_killed(true);
  *failure.mutable_at() = FromTime(absl::FromUnixSeconds(1'700'000'000) + absl::Nanoseconds(123'456'789));
  *failure.mutable_ran_for() = FromDuration(absl::Seconds(12) + absl::Nanoseconds(1));
  failure.set_message("RuntimeError: it broke");
  failure.set_traceback("Traceback:\n  line 1\n  \xC3\xA4");
  failure.set_error_file("/run/errors/5.json");
  failure.set_progress("last reported step 120, 350ms before");
  failure.set_step(120);
  return failure;
}

inline Assignment SampleAssignment() {
  Assignment assignment;
  assignment.set_round(8);
  assignment.set_group_rank(1);
  assignment.set_group_world_size(3);
  assignment.set_base_rank(4);
  assignment.set_world_size(12);
  assignment.set_base_role_rank(2);
  assignment.set_role_world_size(6);
  assignment.set_master_addr("10.0.0.7");
  assignment.set_master_port(40123);
  assignment.set_master_host("node7");
  assignment.set_store_secret("0123456789abcdef");
  assignment.set_restart_count(2);
  assignment.set_reason("restart 2 of 3");
  assignment.set_keeps_workers(true);
  assignment.set_state_source(11);
  assignment.set_state_step(int64_t{1} << 40);
  assignment.set_server_node(2);
  return assignment;
}

inline Verdict SampleVerdict() {
  Verdict verdict;
  verdict.set_succeeded(false);
  verdict.set_reason("rank 5 on node7 was killed");
  *verdict.mutable_first_cause() = SampleFailure();
  verdict.set_exit_code(137);
  return verdict;
}

inline Join SampleJoin() {
  Join join = NewJoin();
  join.set_job_id("job-1");
  join.set_node_id("00ff");
  join.set_incarnation(3);
  join.set_host("node7");
  join.set_address("10.0.0.7");
  join.set_store_port(40001);
  join.set_store_secret("fedcba9876543210");
  join.set_slots(8);
  join.set_role("trainer");
  join.set_node_rank(2);
  join.set_topology("switch1.rack3");
  *join.mutable_settings() = SampleSettings();
  join.set_phase(Join::PHASE_RUNNING);
  *join.mutable_current() = SampleAssignment();
  *join.mutable_heartbeat_timeout() = FromDuration(absl::Seconds(12));
  join.set_in_touch(true);
  *join.add_survivors() = NewSurvivor(0, 0);
  *join.add_survivors() = NewSurvivor(6);
  *join.add_survivors() = NewSurvivor(7, int64_t{1} << 40);
  join.set_can_reform(true);
  join.set_protocol_version(7);
  join.set_session_secret(
      std::string("0123456789\0\xFF"
                  "abcd",
                  16));
  return join;
}

inline Waiting SampleWaiting() {
  Waiting waiting;
  waiting.set_spare(true);
  waiting.set_nodes_joined(2);
  waiting.set_min_nodes(3);
  waiting.set_max_nodes(4);
  waiting.add_hosts("node1");
  waiting.add_hosts("node7");
  *waiting.mutable_remaining() = FromDuration(absl::Seconds(29));
  waiting.set_last_call(true);
  waiting.set_reason("node2 was lost");
  return waiting;
}

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_SERVER_SAMPLES_H_
