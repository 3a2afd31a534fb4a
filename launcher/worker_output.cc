#include "launcher/worker_output.h"

#include <fcntl.h>
#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
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

absl::StatusOr<std::string> TemporaryFolder() {
  const char* base = getenv("TMPDIR");
  std::string pattern = absl::StrCat(base != nullptr && *base != '\0' ? base : "/tmp", "/ddprun_XXXXXX");
  if (mkdtemp(pattern.data()) == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("can't create a temporary log directory ", pattern, ": ",
                                                      std::generic_category().message(errno), "; set --log-dir"));
  }
  return pattern;
}

}  // namespace

absl::StatusOr<WorkerOutput> WorkerOutput::Create(const LaunchConfig* config, LogPump* pump) {
  WorkerOutput output(config, pump);
  std::string base = config->log_dir;
  if (base.empty() && config->redirects.any() && !config->no_files) {
    absl::StatusOr<std::string> folder = TemporaryFolder();
    if (!folder.ok()) return folder.status();
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

absl::StatusOr<UniqueFd> WorkerOutput::OpenStream(const std::string& folder, const char* file, bool redirect, bool tee,
                                                  int console_fd, const std::string& prefix) {
  if (!redirect && !tee) return UniqueFd();
  UniqueFd fd;
  const std::string path = absl::StrCat(folder, "/", file);
  if (!folder.empty()) {
    absl::StatusOr<UniqueFd> opened = OpenLogFile(path);
    if (!opened.ok()) return opened.status();
    fd = *std::move(opened);
  } else if (!tee) {
    return UniqueFd(open("/dev/null", O_WRONLY | O_CLOEXEC));
  }
  if (!tee) return fd;
  return pump_->Add(LogSink{std::move(fd), path, console_fd, prefix});
}

absl::StatusOr<WorkerStreams> WorkerOutput::Open(int restart_count, int32_t local_rank) {
  std::string folder;
  if (!job_folder_.empty()) {
    folder = absl::StrCat(job_folder_, "/attempt_", restart_count, "/", local_rank);
    if (absl::Status status = MakeFolder(folder); !status.ok()) return status;
  }
  const StdStreams redirect = config_->redirects.For(local_rank), tee = config_->tee.For(local_rank);
  const std::string prefix = absl::StrCat("[", config_->role, local_rank, "]:");
  absl::StatusOr<UniqueFd> out = OpenStream(folder, "stdout.log", redirect.out, tee.out, 1, prefix);
  if (!out.ok()) return out.status();
  absl::StatusOr<UniqueFd> err = OpenStream(folder, "stderr.log", redirect.err, tee.err, 2, prefix);
  if (!err.ok()) return err.status();
  absl::StatusOr<ErrorFile> error_file =
      folder.empty() ? ErrorFile::CreateInMemory() : ErrorFile::AtPath(absl::StrCat(folder, "/error.json"));
  if (!error_file.ok()) return error_file.status();
  return WorkerStreams{*std::move(out), *std::move(err), *std::move(error_file)};
}

}  // namespace ddprun::launcher
