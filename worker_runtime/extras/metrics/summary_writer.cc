#include "worker_runtime/extras/metrics/summary_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/hostname.h"
#include "base/write_all.h"
#include "worker_runtime/base/status_macros.h"
#include "worker_runtime/extras/metrics/event_record.h"

namespace ddprun {

absl::StatusOr<std::unique_ptr<SummaryWriter>> SummaryWriter::Create(int rank, const SummaryWriterOptions& options) {
  std::unique_ptr<SummaryWriter> writer(new SummaryWriter);
  if (rank != 0) return writer;
  std::error_code error;
  std::filesystem::create_directories(options.folder, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("can't create the folder ", options.folder));
  const absl::Time now = absl::Now();
  // Ten digits: TensorBoard reads the files in the order of their names.
  writer->path_ = absl::StrFormat("%s/events.out.tfevents.%010d.%s.%d", options.folder, absl::ToUnixSeconds(now),
                                  Hostname(), getpid());
  // Appends: another writer of this process may have created the file in the same second.
  writer->fd_ = open(writer->path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (writer->fd_ < 0) return absl::ErrnoToStatus(errno, absl::StrCat("can't create ", writer->path_));
  DDPRUN_RETURN_IF_ERROR(writer->Write(FileVersionEvent(now)));
  if (options.purge_step.has_value())
    DDPRUN_RETURN_IF_ERROR(writer->Write(SessionStartEvent(now, *options.purge_step)));
  return writer;
}

SummaryWriter::~SummaryWriter() {
  if (fd_ >= 0) close(fd_);
}

absl::Status SummaryWriter::AddScalar(const std::string& tag, double value, int64_t step) {
  return AddScalars({{tag, value}}, step);
}

absl::Status SummaryWriter::AddScalars(const std::map<std::string, double>& values, int64_t step) {
  return fd_ < 0 ? absl::OkStatus() : Write(ScalarsEvent(absl::Now(), step, values));
}

absl::Status SummaryWriter::Write(const std::string& event) {
  const int error = WriteAll(fd_, TfRecord(event));
  return error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(error, absl::StrCat("can't write ", path_));
}

}  // namespace ddprun
