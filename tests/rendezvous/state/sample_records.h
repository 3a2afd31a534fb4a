#ifndef DDPRUN_TESTS_RENDEZVOUS_STATE_SAMPLE_RECORDS_H_
#define DDPRUN_TESTS_RENDEZVOUS_STATE_SAMPLE_RECORDS_H_

#include <string>

#include "rendezvous/core/job_record.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {

// A record with something in every field but those of an ended job.
inline JobRecord LiveRecord(const std::string& job_id, uint64_t round) {
  JobRecord record;
  record.job_id = job_id;
  record.settings.set_min_nodes(2);
  record.settings.set_max_nodes(3);
  record.settings.set_max_restarts(4);
  *record.settings.mutable_reconnect_grace() = FromDuration(absl::Milliseconds(70));
  record.settings_host = "node-a";
  record.owner = "alice";
  record.age = absl::Seconds(90);
  record.restarts_charged = 2;
  record.highest_round = round + 1;
  record.round = RoundRecord{.number = round,
                             .group_world_size = 3,
                             .world_size = 24,
                             .master_addr = "10.0.0.5",
                             .master_port = 41141,
                             .master_host = "node-b",
                             .store_secret = "0123456789abcdef",
                             .reason = "all 3 nodes joined",
                             .leave_reason = "rank 3 exited with code 7",
                             .leave_cause = TextProto("host: 'node-c' rank: 3 pid: 77 exit_code: 7", NewFailure()),
                             .nodes = {{"id-1", "digest 1"}, {"id-2", "", true}, {"id-3", "digest 3"}}};
  record.resized = JobSize{2, 5};
  record.drained_hosts = {"node-a", "node-z"};
  record.fenced = {{"id-2", 5, "digest 2"}, {"id-3", 1, ""}};
  record.restarts = RestartRecord{.charge_ages = {absl::Seconds(70), absl::Milliseconds(500)},
                                  .last_age = absl::Milliseconds(500),
                                  .series = 2,
                                  .wait = absl::Seconds(1),
                                  .last_rank = 3,
                                  .last_step = 1200,
                                  .failures_at_step = 2};
  record.cooldowns = {{"id-3", 2, absl::Seconds(100)}, {"id-1", 1, std::nullopt}};
  record.failing_node = "id-3";
  record.failing_rounds = 4;
  record.kicked = {{"id-7", "root"}, {"id-5", "10.0.0.9"}};
  record.others = {"id-8", "id-4"};
  record.earlier_round = round - 1;
  record.earlier_verdict = NewVerdict(true, "all 24 workers succeeded", std::nullopt, 0);
  record.goodput = TextProto<v1::GoodputRecord>(R"(
      times { waiting { seconds: 1 } starting { seconds: 2 } training { seconds: 3 } re_forming {} lost { seconds: 1 } }
      phase: PHASE_RE_FORMING trained: true highest_step: 1234 step_time { nanos: 250000000 })");
  record.events = {
      TextProto<Event>(R"(kind: "job.created" time { seconds: 1700000000 nanos: 123 } detail: "first node: node-a"
                          min_nodes: 2 max_nodes: 3)"),
      TextProto<Event>(R"(kind: "worker.failed" time { seconds: 1700000001 } node_id: "a1b2c3" host: "node-c"
                          restart_count: 1)"),
      TextProto<Event>(R"(kind: "job.stopped" time { seconds: 1700000002 } actor: "somebody" exit_code: 143)")};
  for (Event& event : record.events) event.set_job_id(job_id);
  record.events[1].set_round(round);
  *record.events[1].mutable_failure() = *record.round.leave_cause;
  return record;
}

inline JobRecord EndedRecord(const std::string& job_id, uint64_t round) {
  JobRecord record = LiveRecord(job_id, round);
  record.verdict = NewVerdict(false, "rank 3 exited with code 7", record.round.leave_cause, 7);
  record.told = {"id-1", "id-2"};
  return record;
}

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_STATE_SAMPLE_RECORDS_H_
