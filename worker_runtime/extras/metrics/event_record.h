#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_METRICS_EVENT_RECORD_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_METRICS_EVENT_RECORD_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

// PURE: encodes TensorBoard's event files. A file is a sequence of TFRecords, each with one Event, a protobuf message
// (tensorboard/compat/proto/event.proto and summary.proto; these are the fields that scalars need):
//
//   Event         wall_time = 1 (double, seconds), step = 2 (int64), file_version = 3 (string), summary = 5,
//                 session_log = 7
//   Summary       value = 1 (repeated)
//   Value         tag = 1 (string), simple_value = 2 (float)
//   SessionLog    status = 1 (enum, START = 1)
namespace ddprun {

// The first record of a file.
std::string FileVersionEvent(absl::Time time);

// Makes TensorBoard drop the entries of other files in the folder from `step` on: a restarted training repeats these
// steps.
std::string SessionStartEvent(absl::Time time, int64_t step);

// One value for each tag. A double is rounded to a float.
std::string ScalarsEvent(absl::Time time, int64_t step, const std::map<std::string, double>& values);

// CRC-32C (Castagnoli, RFC 3720).
uint32_t Crc32c(absl::string_view bytes);

// Encodes a record with `data` (tensorflow/core/lib/io/record_writer.h): its length (uint64), the length's masked
// CRC-32C, the data, the data's masked CRC-32C; all little-endian.
std::string TfRecord(absl::string_view data);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_METRICS_EVENT_RECORD_H_
