#include "worker_runtime/extras/metrics/summary_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/process.h"
#include "base/stream_writer.h"
#include "worker_runtime/base/status_macros.h"
#include "worker_runtime/extras/metrics/event_record.h"

namespace ddprun {

absl::StatusOr<std::unique_ptr<SummaryWriter>> SummaryWriter::Create(std::function<int()> rank,
                                                                     SummaryWriterOptions options) {
  std::unique_ptr<SummaryWriter> writer(new SummaryWriter(std::move(rank), std::move(options)));
  if (writer->rank_() != 0) return writer;
  DDPRUN_RETURN_IF_ERROR(writer->Open());
  if (writer->options_.purge_step.has_value()) {
    DDPRUN_RETURN_IF_ERROR(writer->Write(SessionStartEvent(absl::Now(), *writer->options_.purge_step)));
  }
  return writer;
}

absl::Status SummaryWriter::Open() {
  std::error_code error;
  std::filesystem::create_directories(options_.folder, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("can't create the folder ", options_.folder));
  const absl::Time now = absl::Now();
  // Ten digits: TensorBoard reads the files in the order of their names.
  path_ = absl::StrFormat("%s/events.out.tfevents.%010d.%s.%d", options_.folder, absl::ToUnixSeconds(now), Hostname(),
                          getpid());
  // Appends: another writer of this process may have created the file in the same second.
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) return absl::ErrnoToStatus(errno, absl::StrCat("can't create ", path_));
  return Write(FileVersionEvent(now));
}

SummaryWriter::~SummaryWriter() {
  if (fd_ >= 0) close(fd_);
}

absl::Status SummaryWriter::AddScalar(const std::string& tag, double value, int64_t step) {
  return AddScalars({{tag, value}}, step);
}

absl::Status SummaryWriter::AddScalars(const std::map<std::string, double>& values, int64_t step) {
  if (rank_() != 0) return absl::OkStatus();
  if (fd_ < 0) DDPRUN_RETURN_IF_ERROR(Open());
  return Write(ScalarsEvent(absl::Now(), step, values));
}

absl::Status SummaryWriter::Write(const std::string& event) {
  const int error = WriteAll(fd_, TfRecord(event));
  return error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(error, absl::StrCat("can't write ", path_));
}

}  // namespace ddprun
