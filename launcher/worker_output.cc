#include "launcher/worker_output.h"

#include <fcntl.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "launcher/core/line_prefix.h"
#include "launcher/os/temporary_folder.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/random_id.h"

namespace ddprun::launcher {
namespace {

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("can't create the log directory ", path, ": ", error.message(), "; choose another --log-dir"));
}

absl::StatusOr<LogSink::File> OpenFile(const std::string& path) {
  absl::StatusOr<UniqueFd> fd = OpenLogFile(path);
  if (!fd.ok()) return fd.status();
  return LogSink::File{*std::move(fd), path};
}

// Files are written to even without --log-dir.
bool NeedsFolder(const LaunchConfig& config) {
  return !config.no_files && (config.redirects.any() || (config.tee.any() && config.has_line_filters()));
}

}  // namespace

absl::StatusOr<WorkerOutput> WorkerOutput::Create(const LaunchConfig* config, const std::string& host,
                                                  const std::string& launcher_id, LogPump* pump) {
  WorkerOutput output(config, host, launcher_id, pump);
  std::string base = config->log_dir;
  if (base.empty() && NeedsFolder(*config)) {
    absl::StatusOr<std::string> folder = MakeTemporaryFolder();
    if (!folder.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("can't create a temporary log directory ", folder.status().message(), "; set --log-dir"));
    }
    base = *std::move(folder);
    Log(LogLevel::kWarning, absl::StrCat("no --log-dir given: logs are in ", base));
  }
  if (base.empty()) return output;
  output.job_folder_ =
      absl::StrCat(base, "/", absl::StrReplaceAll(config->job_id, {{"/", "_"}}), "_", RandomId().substr(0, 8));
  if (absl::Status status = MakeFolder(output.job_folder_); !status.ok()) {
    return absl::InvalidArgumentError(status.message());
  }
  return output;
}

absl::StatusOr<UniqueFd> WorkerOutput::OpenStream(const std::string& attempt_folder, const std::string& folder,
                                                  const Stream& stream, const std::string& prefix) {
  const bool to_console = stream.tee && stream.shown;
  if (!stream.redirect && !stream.tee && stream.shown) return UniqueFd();
  const bool to_file = (stream.redirect || stream.tee) && !folder.empty();
  if (!to_file && !to_console) return UniqueFd(open("/dev/null", O_WRONLY | O_CLOEXEC));
  LogSink sink;
  if (to_file) {
    absl::StatusOr<LogSink::File> file = OpenFile(absl::StrCat(folder, "/", stream.name, ".log"));
    if (!file.ok()) return file.status();
    sink.file = *std::move(file);
  }
  if (!to_console) return std::move(sink.file.fd);
  sink.console_fd = stream.console_fd;
  sink.prefix = prefix;
  if (!stream.filters.empty() && !attempt_folder.empty()) {
    absl::StatusOr<LogSink::File> file = OpenFile(absl::StrCat(attempt_folder, "/filtered_", stream.name, ".log"));
    if (!file.ok()) return file.status();
    sink.filters = stream.filters;
    sink.filtered = *std::move(file);
  }
  return pump_->Add(std::move(sink));
}

absl::StatusOr<WorkerStreams> WorkerOutput::Open(int restart_count, int32_t local_rank, int32_t rank) {
  std::string attempt_folder, folder;
  if (!job_folder_.empty()) {
    attempt_folder = absl::StrCat(job_folder_, "/attempt_", restart_count);
    folder = absl::StrCat(attempt_folder, "/", local_rank);
    if (absl::Status status = MakeFolder(folder); !status.ok()) return status;
  }
  const StdStreams redirect = config_->redirects.For(local_rank), tee = config_->tee.For(local_rank);
  const bool shown = config_->local_ranks_filter.empty() || config_->local_ranks_filter.contains(local_rank);
  const std::string prefix = ExpandLinePrefix(config_->line_prefix, {config_->role, local_rank, rank, host_});
  absl::StatusOr<UniqueFd> out =
      OpenStream(attempt_folder, folder, {"stdout", 1, redirect.out, tee.out, shown, config_->stdout_filters}, prefix);
  if (!out.ok()) return out.status();
  absl::StatusOr<UniqueFd> err =
      OpenStream(attempt_folder, folder, {"stderr", 2, redirect.err, tee.err, shown, config_->stderr_filters}, prefix);
  if (!err.ok()) return err.status();
  const std::string error_folder =
      folder.empty() && !config_->no_files ? error_folder_->For(restart_count, local_rank) : folder;
  absl::StatusOr<ErrorFile> error_file = error_folder.empty()
                                             ? ErrorFile::CreateInMemory()
                                             : ErrorFile::AtPath(absl::StrCat(error_folder, "/", kErrorFileName));
  if (!error_file.ok()) return error_file.status();
  return WorkerStreams{*std::move(out), *std::move(err), *std::move(error_file)};
}

}  // namespace ddprun::launcher
