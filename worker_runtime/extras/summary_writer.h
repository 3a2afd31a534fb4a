#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_SUMMARY_WRITER_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_SUMMARY_WRITER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ddprun {

struct SummaryWriterOptions {
  // Created if it does not exist. Use one folder per run.
  std::string folder;

  // The first step that a resumed training repeats: TensorBoard then drops the entries of earlier files in the folder
  // for this step and later ones.
  std::optional<int64_t> purge_step = std::nullopt;
};

// Scalars in TensorBoard's event files, as torch.utils.tensorboard.SummaryWriter writes them: a file
// `events.out.tfevents.<time>.<host>.<pid>` per process, beside those of earlier attempts.
//
//   DDPRUN_ASSIGN_OR_RETURN(auto writer, ddprun::SummaryWriter::Create([&worker] { return worker.env().rank; },
//                                                                      {.folder = "runs/7", .purge_step = step + 1}));
//   DDPRUN_RETURN_IF_ERROR(writer->AddScalars(*metrics.Reduce(*worker.group()), step));
//
// Rank 0 writes; calls on other ranks do nothing. Thread-compatible.
class SummaryWriter {
 public:
  // `rank` returns this rank in the present round: in an elastic training, a rank that becomes rank 0 opens a file of
  // its own at its next call.
  // Errors: those of the file system, with the path: the folder or the file can't be created.
  static absl::StatusOr<std::unique_ptr<SummaryWriter>> Create(std::function<int()> rank, SummaryWriterOptions options);
  // Creates one with a rank that does not change.
  static absl::StatusOr<std::unique_ptr<SummaryWriter>> Create(int rank, SummaryWriterOptions options) {
    return Create([rank] { return rank; }, std::move(options));
  }

  ~SummaryWriter();
  SummaryWriter(const SummaryWriter&) = delete;
  SummaryWriter& operator=(const SummaryWriter&) = delete;

  // Writes a value immediately, with one system call. It is rounded to a float; NaN and infinite values are shown as
  // such. Errors: those of the file system, with the path.
  absl::Status AddScalar(const std::string& tag, double value, int64_t step);

  // One value per tag.
  absl::Status AddScalars(const std::map<std::string, double>& values, int64_t step);

  // Path of the file; empty on a rank that has not been rank 0.
  const std::string& path() const { return path_; }

 private:
  SummaryWriter(std::function<int()> rank, SummaryWriterOptions options)
      : rank_(std::move(rank)), options_(std::move(options)) {}

  absl::Status Open();
  absl::Status Write(const std::string& event);

  const std::function<int()> rank_;
  const SummaryWriterOptions options_;
  int fd_ = -1;  // -1: not opened
  std::string path_;
};

// ---- PURE: the encoding of TensorBoard's event files ----
//
// A file is a sequence of TFRecords, each with one Event, a protobuf message
// (tensorboard/compat/proto/event.proto and summary.proto; these are the fields that scalars need):
//
//   Event         wall_time = 1 (double, seconds), step = 2 (int64), file_version = 3 (string), summary = 5,
//                 session_log = 7
//   Summary       value = 1 (repeated)
//   Value         tag = 1 (string), simple_value = 2 (float)
//   SessionLog    status = 1 (enum, START = 1)

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

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_SUMMARY_WRITER_H_
