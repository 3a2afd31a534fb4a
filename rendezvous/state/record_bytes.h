#ifndef DDPRUN_RENDEZVOUS_STATE_RECORD_BYTES_H_
#define DDPRUN_RENDEZVOUS_STATE_RECORD_BYTES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/core/job_record.h"

// A record as it lies in a file (proto/state.proto). Thread-safe.
namespace ddprun::rendezvous {

std::string ToBytes(const JobRecord& record);

//   DATA_LOSS  these are no bytes of ToBytes.
absl::StatusOr<JobRecord> RecordFromBytes(absl::string_view bytes);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_STATE_RECORD_BYTES_H_
