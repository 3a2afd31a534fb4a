#ifndef DDPRUN_RENDEZVOUS_STATE_RECORD_BYTES_H_
#define DDPRUN_RENDEZVOUS_STATE_RECORD_BYTES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/core/job_record.h"

// Serialization of records (proto/state.proto). Thread-safe.
namespace ddprun::rendezvous {

std::string ToBytes(const JobRecord& record);

// Parses the output of ToBytes. Counts, ages and texts that came from launchers and clocks are clamped to their bounds.
// Parts that decide nothing are dropped if they are malformed: failures, goodput, events, the verdict of the previous
// job.
//   DATA_LOSS  malformed in another part, or written by a newer server.
absl::StatusOr<JobRecord> RecordFromBytes(absl::string_view bytes);

// A log line about a record that RecordFromBytes refused and that was moved to `place`.
std::string DescribeSetAside(absl::string_view job_id, const absl::Status& problem, absl::string_view place);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_STATE_RECORD_BYTES_H_
