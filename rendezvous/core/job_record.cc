#include "rendezvous/core/job_record.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "proto/time.h"
#include "rendezvous/core/job_history.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/core/phrases.h"
#include "rendezvous/core/validate.h"

namespace ddprun::rendezvous {
namespace {

constexpr uint64_t kMaxRound = uint64_t{1} << 62;  // so that there is always a next round

void Fit(size_t max_bytes, std::string* text) { *text = FitText(*text, max_bytes); }

void Check(RoundRecord* round, Fields strict, Fields lenient) {
  if (round->number() > kMaxRound) strict.Fail("number", "is too large");
  round->set_group_world_size(strict.Number("group_world_size", round->group_world_size(), 0, kMaxNodes));
  round->set_world_size(strict.Number("world_size", round->world_size(), 0, int64_t{kMaxNodes} * kMaxSlots));
  strict.OptionalName("master_addr", kMaxNameBytes, round->mutable_master_addr());
  round->set_master_port(strict.Number("master_port", round->master_port(), 0, 65535));
  lenient.OptionalName("master_host", kMaxNameBytes, round->mutable_master_host());
  strict.Secret("store_secret", round->store_secret());
  Fit(kMaxTextBytes, round->mutable_reason());
  Fit(kMaxTextBytes, round->mutable_leave_reason());
  if (round->has_leave_cause()) rendezvous::Check(round->mutable_leave_cause(), lenient);
  if (!round->nodes().empty() && round->nodes_size() != round->group_world_size()) {
    strict.Fail("nodes", "are not group_world_size");
  }
}

void Check(RestartRecord* restarts, Fields lenient) {
  for (auto& age : *restarts->mutable_charge_ages()) age = FromDuration(NearestDuration(age));
  if (restarts->has_last_age()) lenient.Duration("last_age", restarts);
  restarts->set_series(lenient.Number("series", restarts->series(), 0, INT32_MAX));
  lenient.Duration("wait", restarts);
  restarts->set_last_rank(lenient.Number("last_rank", restarts->last_rank(), -1, INT32_MAX));
  restarts->set_failures_at_step(lenient.Number("failures_at_step", restarts->failures_at_step(), 0, INT32_MAX));
}

// Rounds, their membership and the size of the job are checked with `strict`: a value that no server can have written
// makes the record unusable. Everything else is checked with `lenient`, so that it can't invalidate the record and with
// it the round. Before a record is written, both only make its texts fit.
void Check(JobRecord* record, Fields strict, Fields lenient) {
  strict.Name("job_id", kMaxNameBytes, record->mutable_job_id());
  rendezvous::Check(record->mutable_settings(), strict.Inside("settings"));
  lenient.OptionalName("settings_host", kMaxNameBytes, record->mutable_settings_host());
  Fit(kMaxNameBytes, record->mutable_owner());
  lenient.Duration("age", record);
  record->set_restarts_charged(lenient.Number("restarts_charged", record->restarts_charged(), 0, INT32_MAX));
  Check(record->mutable_round(), strict.Inside("round"), lenient);
  if (record->highest_round() < record->round().number()) strict.Fail("highest_round", "is less than round.number");
  if (record->resized_max_nodes() != 0) {
    record->set_resized_max_nodes(strict.Number("resized_max_nodes", record->resized_max_nodes(), 1, kMaxNodes));
    record->set_resized_min_nodes(
        strict.Number("resized_min_nodes", record->resized_min_nodes(), 1, record->resized_max_nodes()));
  }
  if (record->has_restarts()) Check(record->mutable_restarts(), lenient);
  for (CooldownRecord& node : *record->mutable_cooldowns()) {
    node.set_times(lenient.Number("cooldowns.times", node.times(), 0, INT32_MAX));
    if (node.has_remaining()) lenient.Duration("remaining", &node);
  }
  record->set_failing_rounds(lenient.Number("failing_rounds", record->failing_rounds(), 0, INT32_MAX));
  for (KickedNodeRecord& node : *record->mutable_kicked()) Fit(kMaxNameBytes, node.mutable_actor());
  // Without its verdict the previous job is forgotten, as the oldest ended ones are.
  if (!record->has_earlier_verdict()) record->clear_earlier_round();
  if (record->has_earlier_verdict()) rendezvous::Check(record->mutable_earlier_verdict(), lenient);
  if (record->has_goodput()) rendezvous::Check(record->mutable_goodput(), lenient);
  for (Event& event : *record->mutable_events()) rendezvous::Check(&event, lenient);
  if (record->has_verdict()) rendezvous::Check(record->mutable_verdict(), lenient);
}

void Add(absl::Duration by, google::protobuf::Duration* time) { *time = FromDuration(ToDuration(*time) + by); }

void Shorten(Verdict* verdict) {
  verdict->set_reason(OneLine(verdict->reason(), JobHistory::kMaxText));
  if (verdict->has_first_cause()) ShortenTexts(JobHistory::kMaxText, verdict->mutable_first_cause());
}

}  // namespace

JobRecord NewRecord(std::string job_id, JobSettings settings) {
  JobRecord record;
  record.set_job_id(std::move(job_id));
  *record.mutable_settings() = std::move(settings);
  return record;
}

std::string ToBytes(JobRecord record) {
  Check(&record, Fields::Fit(), Fields::Fit());
  return record.SerializeAsString();
}

absl::StatusOr<JobRecord> RecordFromBytes(absl::string_view bytes) {
  JobRecord record;
  if (!record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::DataLossError("a job's record can't be parsed");
  }
  absl::Status status;
  Check(&record, Fields("record", &status), Fields::Lenient());
  if (!status.ok()) return absl::DataLossError(absl::StrCat("invalid job record: ", status.message()));
  record.clear_since_end();
  if (record.has_goodput()) record.mutable_goodput()->clear_ago();
  return record;
}

void AddAge(absl::Duration by, JobRecord* record) {
  if (by < absl::ZeroDuration() || by > kMaxDuration) return;
  const auto take_off = [by](google::protobuf::Duration* left) {
    *left = FromDuration(std::max(ToDuration(*left) - by, absl::ZeroDuration()));
  };
  Add(by, record->mutable_age());
  if (record->has_verdict()) Add(by, record->mutable_since_end());
  if (record->has_goodput()) Add(by, record->mutable_goodput()->mutable_ago());
  if (record->has_restarts()) {
    RestartRecord* const restarts = record->mutable_restarts();
    for (auto& age : *restarts->mutable_charge_ages()) Add(by, &age);
    if (restarts->has_last_age()) Add(by, restarts->mutable_last_age());
    take_off(restarts->mutable_wait());
  }
  for (CooldownRecord& node : *record->mutable_cooldowns()) {
    if (node.has_remaining()) take_off(node.mutable_remaining());
  }
}

JobRecord Shortened(JobRecord record) {
  record.clear_events();
  if (record.round().has_leave_cause()) {
    ShortenTexts(JobHistory::kMaxText, record.mutable_round()->mutable_leave_cause());
  }
  if (record.has_earlier_verdict()) Shorten(record.mutable_earlier_verdict());
  if (!record.has_verdict()) return record;
  Shorten(record.mutable_verdict());
  record.mutable_round()->clear_nodes();
  record.clear_fenced();
  return record;
}

std::string DescribeSetAside(absl::string_view job_id, const absl::Status& problem, absl::string_view place) {
  return absl::StrCat("can't read the record of job ", EscapeControls(job_id), " (", problem.message(),
                      "); it is kept as ", place,
                      "; this job is rebuilt from what its launchers report, and other jobs are not affected");
}

}  // namespace ddprun::rendezvous
