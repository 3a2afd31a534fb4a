#ifndef DDPRUN_TESTS_RENDEZVOUS_SERVER_SAMPLES_H_
#define DDPRUN_TESTS_RENDEZVOUS_SERVER_SAMPLES_H_

#include <string>

#include "rendezvous/core/messages.h"
#include "tests/testing/text_proto.h"

// Messages with a value in every field, for tests.
namespace ddprun::rendezvous {

inline JobSettings SampleSettings() {
  return TextProto(R"(
    min_nodes: 2 max_nodes: 4 max_restarts: 3 max_failures_at_step: 0
    join_timeout { seconds: 420 nanos: 5 } last_call { seconds: 1 nanos: 250000000 }
    heartbeat_timeout { seconds: 6 } reconnect_grace { nanos: 70000000 }
    restart_window { seconds: 3600 } restart_backoff { nanos: 250000000 } node_cooldown { seconds: 90 })",
                   DefaultSettings());
}

inline WorkerFailure SampleFailure() {
  return TextProto(R"(
    host: "node7" rank: 5 local_rank: 1 pid: 4711 exit_code: 3 signal: 9 restartable: false oom_killed: true
    at { seconds: 1700000000 nanos: 123456789 } ran_for { seconds: 12 nanos: 1 } step: 120
    message: "RuntimeError: it broke" traceback: "Traceback:\n  line 1\n  \303\244"
    error_file: "/run/errors/5.json" progress: "last reported step 120, 350ms before")",
                   NewFailure());
}

inline Assignment SampleAssignment() {
  return TextProto<Assignment>(R"(
    round: 8 group_rank: 1 group_world_size: 3 base_rank: 4 world_size: 12 base_role_rank: 2 role_world_size: 6
    master_addr: "10.0.0.7" master_port: 40123 master_host: "node7" store_secret: "0123456789abcdef"
    restart_count: 2 reason: "restart 2 of 3" keeps_workers: true state_source: 11 state_step: 1099511627776
    server_node: 2)");
}

inline Verdict SampleVerdict() {
  auto verdict = TextProto<Verdict>("succeeded: false reason: 'rank 5 on node7 was killed' exit_code: 137");
  *verdict.mutable_first_cause() = SampleFailure();
  return verdict;
}

inline Join SampleJoin() {
  Join join = TextProto(R"(
    job_id: "job-1" node_id: "00ff" incarnation: 3 host: "node7" address: "10.0.0.7" store_port: 40001
    store_secret: "fedcba9876543210" slots: 8 role: "trainer" node_rank: 2 topology: "switch1.rack3"
    phase: PHASE_RUNNING heartbeat_timeout { seconds: 12 } in_touch: true can_reform: true protocol_version: 7
    survivors { local_rank: 0 committed_step: 0 } survivors { local_rank: 6 }
    survivors { local_rank: 7 committed_step: 1099511627776 } session_secret: "0123456789\000\377abcd")",
                        NewJoin());
  *join.mutable_settings() = SampleSettings();
  *join.mutable_current() = SampleAssignment();
  return join;
}

inline Waiting SampleWaiting() {
  return TextProto<Waiting>(R"(
    spare: true nodes_joined: 2 min_nodes: 3 max_nodes: 4 hosts: ["node1", "node7"] remaining { seconds: 29 }
    last_call: true reason: "node2 was lost")");
}

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_SERVER_SAMPLES_H_
