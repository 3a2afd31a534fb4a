#include "launcher/workers/worker_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/config/output_settings.h"
#include "launcher/io/error_file.h"

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
  DDPRUN_ASSIGN_OR_RETURN(UniqueFd fd, OpenLogFile(path));
  return LogSink::File{std::move(fd), path};
}

// True if files are written even without --log-dir.
bool NeedsFolder(const OutputSettings& output) {
  return !output.no_files && (output.redirects.any() || (output.tee.any() && output.has_line_filters()));
}

bool IsSameFile(int a, int b) {
  struct stat of_a = {}, of_b = {};
  return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

int64_t SizeOf(const UniqueFd& file) {
  struct stat status = {};
  return fstat(file.get(), &status) == 0 ? status.st_size : 0;
}

}  // namespace

// The blocking part. Owns everything it uses, because a call may outlive the launcher's other objects while a file
// system stalls.
class WorkerOutput::Files {
 public:
  Files(const LaunchConfig& config, const std::string& host, const std::string& launcher_id)
      : config_(config),
        host_(host),
        passes_on_(!config.options.keep_orphans && isatty(STDERR_FILENO) == 0),
        one_stream_(IsSameFile(STDOUT_FILENO, STDERR_FILENO)),
        error_folder_(launcher_id) {}

  // As WorkerOutput::Create.
  absl::Status MakeJobFolder() {
    std::string base = config_.options.output.log_dir;
    if (base.empty() && NeedsFolder(config_.options.output)) {
      absl::StatusOr<std::string> folder = MakeTemporaryFolder();
      if (!folder.ok()) {
        return absl::FailedPreconditionError(
            absl::StrCat("can't create a temporary log directory ", folder.status().message(), "; set --log-dir"));
      }
      base = *std::move(folder);
      Log(LogLevel::kWarning, absl::StrCat("no --log-dir given: logs are in ", base));
    }
    if (base.empty()) return absl::OkStatus();
    job_folder_ =
        absl::StrCat(base, "/", absl::StrReplaceAll(config_.job_id, {{"/", "_"}}), "_", RandomId().substr(0, 8));
    if (absl::Status status = MakeFolder(job_folder_); !status.ok()) {
      return absl::InvalidArgumentError(status.message());
    }
    return absl::OkStatus();
  }

  // Thread-safe: a later call waits for an earlier one, which may have been abandoned.
  std::vector<absl::StatusOr<Opened>> Open(int restart_count, int32_t base_rank, const LocalRanks& ranks) {
    MutexLock lock(&mutex_);
    std::vector<absl::StatusOr<Opened>> opened;
    for (const int32_t rank : ranks) opened.push_back(OpenLocked(restart_count, rank, base_rank + rank));
    return opened;
  }

  void Close() { error_folder_.Close(); }

 private:
  // One output stream of one worker.
  struct StreamRequest {
    const char* name;  // "stdout"
    int console_fd;    // the launcher's own
    bool redirect;
    bool tee;
    bool shown;  // selected by --local-ranks-filter
    const std::vector<std::string>& filters;
  };

  absl::StatusOr<Opened> OpenLocked(int restart_count, int32_t local_rank, int32_t rank)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Stream> OpenStream(const std::string& attempt_folder, const std::string& folder,
                                    const StreamRequest& request, const std::string& prefix) const;

  const LaunchConfig config_;
  const std::string host_;
  const bool passes_on_;    // workers' stderr can be passed on to the launcher's
  const bool one_stream_;   // the launcher's stdout and stderr are one file
  std::string job_folder_;  // empty: no files
  Mutex mutex_;
  ErrorFolder error_folder_;  // used if job_folder_ is empty
};

absl::StatusOr<WorkerOutput::Stream> WorkerOutput::Files::OpenStream(const std::string& attempt_folder,
                                                                     const std::string& folder,
                                                                     const StreamRequest& request,
                                                                     const std::string& prefix) const {
  const bool to_console = request.tee && request.shown;
  LogSink sink;
  if (!request.redirect && !request.tee && request.shown) {
    if (request.console_fd != STDERR_FILENO || !passes_on_) return Stream();
    sink.file = {UniqueFd(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)), "standard error"};
    sink.passes_on = true;
    if (!sink.file.fd.valid()) return Stream();
    return Stream{UniqueFd(), std::move(sink)};
  }
  const bool to_file = (request.redirect || request.tee) && !folder.empty();
  if (!to_file && !to_console) {
    if (request.console_fd == STDERR_FILENO && !config_.options.keep_orphans) return Stream{UniqueFd(), LogSink()};
    return Stream{UniqueFd(open("/dev/null", O_WRONLY | O_CLOEXEC)), std::nullopt};
  }
  Stream stream;
  if (to_file) {
    DDPRUN_ASSIGN_OR_RETURN(sink.file, OpenFile(absl::StrCat(folder, "/", request.name, ".log")));
    stream.path = sink.file.name;
    stream.from = SizeOf(sink.file.fd);
  }
  if (!to_console) {
    stream.direct = std::move(sink.file.fd);
    return stream;
  }
  sink.console_fd = request.console_fd;
  sink.prefix = prefix;
  if (!request.filters.empty() && !attempt_folder.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(LogSink::File file,
                            OpenFile(absl::StrCat(attempt_folder, "/filtered_", request.name, ".log")));
    sink.filters = request.filters;
    sink.filtered = std::move(file);
  }
  stream.sink = std::move(sink);
  return stream;
}

absl::StatusOr<WorkerOutput::Opened> WorkerOutput::Files::OpenLocked(int restart_count, int32_t local_rank,
                                                                     int32_t rank) {
  std::string attempt_folder, folder;
  if (!job_folder_.empty()) {
    attempt_folder = absl::StrCat(job_folder_, "/attempt_", restart_count);
    folder = absl::StrCat(attempt_folder, "/", local_rank);
    DDPRUN_RETURN_IF_ERROR(MakeFolder(folder));
  }
  const OutputSettings& output = config_.options.output;
  const StdStreams redirect = output.redirects.For(local_rank), tee = output.tee.For(local_rank);
  const bool shown = output.local_ranks_filter.Shows(local_rank, rank);
  const std::string prefix = ExpandLinePrefix(output.line_prefix, {config_.options.role, local_rank, rank, host_});
  DDPRUN_ASSIGN_OR_RETURN(
      Stream out,
      OpenStream(attempt_folder, folder, {"stdout", 1, redirect.out, tee.out, shown, output.stdout_filters}, prefix));
  DDPRUN_ASSIGN_OR_RETURN(
      Stream err,
      OpenStream(attempt_folder, folder, {"stderr", 2, redirect.err, tee.err, shown, output.stderr_filters}, prefix));
  const std::string error_folder = folder.empty() && !output.no_files ? error_folder_.For(local_rank) : folder;
  DDPRUN_ASSIGN_OR_RETURN(ErrorFile error_file,
                          error_folder.empty() ? ErrorFile::CreateInMemory()
                                               : ErrorFile::AtPath(absl::StrCat(error_folder, "/", kErrorFileName)));
  const bool passed_on = err.sink && err.sink->passes_on;
  const bool both_inherited = !redirect.out && !tee.out && shown;
  return Opened{std::move(out), std::move(err), passed_on && both_inherited && one_stream_, std::move(error_file)};
}

absl::StatusOr<WorkerOutput> WorkerOutput::Create(const LaunchConfig& config, const std::string& host,
                                                  const std::string& launcher_id, EventLoop* loop, LogPump* pump) {
  auto files = std::make_shared<Files>(config, host, launcher_id);
  DDPRUN_RETURN_IF_ERROR(files->MakeJobFolder());
  return WorkerOutput(std::move(files), loop, pump);
}

void WorkerOutput::Open(int restart_count, int32_t base_rank, const LocalRanks& ranks, Done done) {
  opening_ = std::make_unique<BackgroundCall<std::vector<absl::StatusOr<Opened>>>>(
      loop_, [files = files_, restart_count, base_rank, ranks] { return files->Open(restart_count, base_rank, ranks); },
      [pump = pump_, done = std::move(done)](std::vector<absl::StatusOr<Opened>> opened) {
        std::vector<absl::StatusOr<WorkerStreams>> streams;
        for (absl::StatusOr<Opened>& one : opened) streams.push_back(Connect(std::move(one), pump));
        done(std::move(streams));
      });
}

void WorkerOutput::Close() { files_->Close(); }

absl::StatusOr<WorkerStreams> WorkerOutput::Connect(absl::StatusOr<Opened> opened, LogPump* pump) {
  if (!opened.ok()) return opened.status();
  std::shared_ptr<PipeTail> out_tail, tail;
  for (Stream* const stream : {&opened->out, &opened->err}) {
    if (!stream->sink) continue;
    const bool passes_on = stream->sink->passes_on;
    absl::StatusOr<UniqueFd> pipe = pump->Add(*std::move(stream->sink), stream == &opened->err ? &tail : &out_tail);
    if (!pipe.ok() && passes_on) continue;  // out of descriptors: it gets the launcher's own stream
    if (!pipe.ok()) return pipe.status();
    stream->direct = *std::move(pipe);
  }
  const bool joined = opened->shared && opened->err.direct.valid();
  if (joined) opened->out.direct.reset(fcntl(opened->err.direct.get(), F_DUPFD_CLOEXEC, 3));
  const auto source = [](const Stream& stream, std::shared_ptr<PipeTail> its_tail, bool is_joined = false) {
    return OutputSource{stream.path, static_cast<uint64_t>(stream.from), std::move(its_tail), is_joined};
  };
  WorkerStreams streams{std::move(opened->out.direct),         std::move(opened->err.direct),
                        std::move(opened->error_file),         nullptr,
                        source(opened->out, out_tail, joined), source(opened->err, tail)};
  if (tail != nullptr) {
    streams.error_tail = [tail] { return tail->Text(); };
  } else if (!opened->err.path.empty()) {
    streams.error_tail = [path = opened->err.path, from = opened->err.from] { return ReadFileTail(path, from); };
  }
  return streams;
}

}  // namespace ddprun::launcher
