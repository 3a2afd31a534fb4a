#ifndef DDPRUN_TESTS_RENDEZVOUS_CORE_SAMPLE_RECORDS_H_
#define DDPRUN_TESTS_RENDEZVOUS_CORE_SAMPLE_RECORDS_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/job_record.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {

// A record with something in every field but those of an ended job.
inline JobRecord LiveRecord(const std::string& job_id, uint64_t round) {
  auto record = TextProto<JobRecord>(R"(
      settings_host: "node-a" owner: "alice" age { seconds: 90 } restarts_charged: 2
      round {
        group_world_size: 3 world_size: 24 master_addr: "10.0.0.5" master_port: 41141 master_host: "node-b"
        store_secret: "0123456789abcdef" reason: "all 3 nodes joined" leave_reason: "rank 3 exited with code 7"
        leave_cause { host: "node-c" rank: 3 pid: 77 exit_code: 7 restartable: true at {} ran_for {} }
        nodes { node_id: "id-1" session: "digest 1" }
        nodes { node_id: "id-2" gone: true }
        nodes { node_id: "id-3" session: "digest 3" }
      }
      resized_min_nodes: 2 resized_max_nodes: 5 drained_hosts: "node-a" drained_hosts: "node-z"
      fenced { node_id: "id-2" incarnation: 5 session: "digest 2" } fenced { node_id: "id-3" incarnation: 1 }
      restarts {
        charge_ages { seconds: 70 } charge_ages { nanos: 500000000 } last_age { nanos: 500000000 } series: 2
        wait { seconds: 1 } last_rank: 3 last_step: 1200 failures_at_step: 2
      }
      cooldowns { node_id: "id-3" times: 2 remaining { seconds: 100 } } cooldowns { node_id: "id-1" times: 1 }
      failing_node: "id-3" failing_rounds: 4
      kicked { node_id: "id-7" actor: "root" } kicked { node_id: "id-5" actor: "10.0.0.9" }
      others: "id-8" others: "id-4"
      earlier_verdict { succeeded: true reason: "all 24 workers succeeded" }
      goodput {
        times {
          waiting { seconds: 1 } starting { seconds: 2 } training { seconds: 3 } re_forming {} lost { seconds: 1 }
        }
        phase: PHASE_RE_FORMING trained: true highest_step: 1234 step_time { nanos: 250000000 }
      }
      events { kind: "job.created" time { seconds: 1700000000 nanos: 123 } detail: "first node: node-a" max_nodes: 3 }
      events { kind: "worker.failed" time { seconds: 1700000001 } node_id: "a1b2c3" host: "node-c" restart_count: 1 }
      events { kind: "job.stopped" time { seconds: 1700000002 } actor: "somebody" exit_code: 143 })");
  record.set_job_id(job_id);
  *record.mutable_settings() = TextProto("min_nodes: 2 max_nodes: 3 max_restarts: 4", DefaultSettings());
  record.set_highest_round(round + 1);
  record.mutable_round()->set_number(round);
  record.set_earlier_round(round - 1);
  for (v1::Event& event : *record.mutable_events()) event.set_job_id(job_id);
  *record.mutable_events(1)->mutable_failure() = record.round().leave_cause();
  return record;
}

inline JobRecord EndedRecord(const std::string& job_id, uint64_t round) {
  JobRecord record = LiveRecord(job_id, round);
  *record.mutable_verdict() = NewVerdict(false, "rank 3 exited with code 7", record.round().leave_cause(), 7);
  record.add_told("id-1");
  record.add_told("id-2");
  return record;
}

// Replaces the nodes of the record's round by this many.
inline void FillRound(int nodes, JobRecord* record) {
  RoundRecord* const round = record->mutable_round();
  round->set_group_world_size(nodes);
  round->clear_nodes();
  for (int i = 0; i < nodes; ++i) {
    RoundNodeRecord* const node = round->add_nodes();
    node->set_node_id(absl::StrCat("0123456789abcdef0123456789a", 10'000 + i));
    node->set_session(std::string(32, 's'));
  }
}

// Ends the job by this failure. All nodes of the round were told, and may have workers.
inline void EndWith(const WorkerFailure& failure, JobRecord* record) {
  *record->mutable_verdict() = NewVerdict(false, "rank 3 exited with code 7", failure, 7);
  record->clear_fenced();
  for (const RoundNodeRecord& node : record->round().nodes()) {
    record->add_told(node.node_id());
    FencedNodeRecord* const fenced = record->add_fenced();
    fenced->set_node_id(node.node_id());
    fenced->set_incarnation(1);
    fenced->set_session(node.session());
  }
}

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_CORE_SAMPLE_RECORDS_H_
