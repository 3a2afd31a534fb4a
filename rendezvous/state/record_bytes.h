#ifndef DDPRUN_RENDEZVOUS_STATE_RECORD_BYTES_H_
#define DDPRUN_RENDEZVOUS_STATE_RECORD_BYTES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/core/job_record.h"

// A record as it lies in a file (proto/state.proto). Thread-safe.
namespace ddprun::rendezvous {

std::string ToBytes(const JobRecord& record);

// Reads what ToBytes wrote, whatever launchers and clocks said: counts, ages and texts that don't fit are bounded.
//   DATA_LOSS  these are no bytes of ToBytes, or a newer server wrote them.
absl::StatusOr<JobRecord> RecordFromBytes(absl::string_view bytes);

// A line for the log about a record that RecordFromBytes refused, and that is at `place` now.
std::string DescribeSetAside(absl::string_view job_id, const absl::Status& problem, absl::string_view place);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_STATE_RECORD_BYTES_H_
