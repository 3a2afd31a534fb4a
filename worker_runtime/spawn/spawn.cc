#include "worker_runtime/spawn/spawn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "base/text.h"
#include "worker_contract/environment.h"
#include "worker_contract/exit_codes.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/spawn/worker_processes.h"

extern char** environ;

namespace ddprun {
namespace {

constexpr size_t kMaxErrorBytes = 2000;

// The content of an error file until its worker reaches Spawn.
constexpr char kNotArrived[] = "not arrived";

// Time to wait for further failures before the other workers are stopped. A worker's peers may notice that its
// connections are closed, and end, before its own end can be seen.
constexpr absl::Duration kSettleTime = absl::Milliseconds(100);

class OwnedFd {
 public:
  explicit OwnedFd(int fd = -1) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&&) = delete;
  ~OwnedFd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(errno)));
}

// ---- in a worker ----

// Called in a process that Spawn executed: runs `body` and exits, unless the process is for a later call.
void BecomeWorker(const SpawnMark& mark, int call, const SpawnOptions& options,
                  absl::FunctionRef<absl::Status(Worker&)> body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent was killed before the line above.
  if (getppid() != mark.parent) _exit(worker_contract::ExitCodeOfSignal(SIGKILL));
  if (call != mark.call) return;
  unsetenv(kSpawnVariable);  // not inherited by programs that this one starts
  if (ftruncate(mark.error_fd, 0) != 0) fprintf(stderr, "Spawn: the error file is gone: %s\n", strerror(errno));
  fcntl(mark.error_fd, F_SETFD, FD_CLOEXEC);
  RunWorker(options.worker, body);
}

// ---- in the calling process ----

// A store for the workers, listening on the loopback interface only.
struct LocalStore {
  int port = 0;
  c10::intrusive_ptr<c10d::TCPStore> store;
};

absl::StatusOr<LocalStore> HostStore() {
  OwnedFd listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (listening.get() < 0 || bind(listening.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return SystemError("opening a port for the workers' store");
  }
  LocalStore local;
  local.port = ntohs(address.sin_port);
  DDPRUN_RETURN_IF_ERROR(TorchTry("starting the workers' store", [&] {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(local.port);
    options.isServer = true;
    options.waitWorkers = false;
    options.masterListenFd = listening.release();
    local.store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    return absl::OkStatus();
  }));
  return local;
}

// The file, in memory, into which a worker writes its last error.
absl::StatusOr<OwnedFd> MakeErrorFile() {
  OwnedFd file(memfd_create("ddprun_spawn_error", MFD_CLOEXEC));
  if (file.get() < 0 || write(file.get(), kNotArrived, sizeof(kNotArrived) - 1) < 0) {
    return SystemError("making a worker's error file");
  }
  return file;
}

// Content of a worker's error file, and the time it was written; empty: nothing was written.
struct ErrorReport {
  std::string content;
  timespec written = {};
};

ErrorReport ReadErrorFile(int fd) {
  ErrorReport words;
  struct stat info;
  if (fstat(fd, &info) != 0) return words;
  words.written = info.st_mtim;
  words.content.resize(std::min<off_t>(info.st_size, 1 << 20));
  const ssize_t count = pread(fd, words.content.data(), words.content.size(), 0);
  words.content.resize(std::max<ssize_t>(count, 0));
  return words;
}

// Returns the message of an error file that worker.h has written.
std::string MessageOf(const std::string& content) {
  const nlohmann::json file = nlohmann::json::parse(content, nullptr, /*allow_exceptions=*/false);
  const auto member = [](const nlohmann::json& value, const char* name) {
    return value.is_object() && value.contains(name) ? value[name] : nlohmann::json();
  };
  nlohmann::json message = member(file, "message");
  if (message.is_object()) message = member(message, "message");
  return OneLine(message.is_string() ? message.get<std::string>() : content, kMaxErrorBytes);
}

struct Failure {
  ProcessSet::End end;
  ErrorReport words;
};

bool Failed(const Failure& failure) {
  return failure.end.signaled || failure.end.code != 0 || failure.words.content == kNotArrived;
}

bool HasErrorReport(const Failure& failure) {
  return !failure.words.content.empty() && failure.words.content != kNotArrived;
}

// True if `a` is the cause rather than `b`. A worker whose peer is gone reports that in its error file; a worker that
// ended without a report failed for another reason, even if its end was seen slightly later. Otherwise the earlier
// report is the cause.
bool Earlier(const Failure& a, const Failure& b) {
  const auto kind = [](const Failure& failure) { return failure.end.signaled ? 0 : HasErrorReport(failure) ? 2 : 1; };
  if (kind(a) != kind(b)) return kind(a) < kind(b);
  return kind(a) == 2 && std::pair(a.words.written.tv_sec, a.words.written.tv_nsec) <
                             std::pair(b.words.written.tv_sec, b.words.written.tv_nsec);
}

absl::Status Explain(const Failure& failure, int nprocs) {
  const bool arrived = failure.words.content != kNotArrived;
  const std::string message = arrived ? MessageOf(failure.words.content) : "";
  std::string text = absl::StrCat("worker ", failure.end.index, " of ", nprocs, " ");
  if (failure.end.signaled) {
    absl::StrAppend(&text, "was killed by ", SignalName(failure.end.code));
  } else if (!arrived) {
    absl::StrAppend(&text, "exited with code ", failure.end.code,
                    " before it reached Spawn; main must reach the same call of Spawn in every worker");
  } else if (message.empty()) {
    absl::StrAppend(&text, "exited with code ", failure.end.code);
  } else {
    absl::StrAppend(&text, "failed");
  }
  if (!message.empty()) absl::StrAppend(&text, ": ", message);
  return absl::AbortedError(text);
}

std::vector<std::string> OwnArguments() {
  std::string all;
  if (FILE* const file = fopen("/proc/self/cmdline", "re")) {
    for (int c = 0; (c = fgetc(file)) != EOF;) all.push_back(static_cast<char>(c));
    fclose(file);
  }
  if (!all.empty()) all.pop_back();  // the final NUL of the last argument
  return absl::StrSplit(all, '\0');
}

// The workers of one call, from their start to the end of the last.
class Workers {
 public:
  Workers(int nprocs, absl::Duration grace) : nprocs_(nprocs), grace_(grace) {}

  absl::Status Start(int call, int store_port) {
    const std::vector<std::string> argv = OwnArguments();
    std::vector<std::string> environment;
    for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
    for (int rank = 0; rank < nprocs_; ++rank) {
      DDPRUN_ASSIGN_OR_RETURN(OwnedFd file, MakeErrorFile());
      const SpawnMark mark{call, getpid(), file.get()};
      DDPRUN_RETURN_IF_ERROR(processes_.Start(
          {"/proc/self/exe", argv, EnvironmentOf({rank, nprocs_, store_port, mark}, environment), file.get()}));
      error_files_.push_back(std::move(file));
    }
    return absl::OkStatus();
  }

  // Waits until all workers have ended.
  absl::Status Watch() {
    while (processes_.running() > 0) {
      const std::vector<ProcessSet::End> ends = processes_.Wait(deadline_);
      if (ends.empty()) GoOn();
      for (const ProcessSet::End& end : ends) Note({end, ReadErrorFile(error_files_[end.index].get())});
      if (first_.has_value() && phase_ == Phase::kRunning) GoOn();
    }
    return first_.has_value() ? Explain(*first_, nprocs_) : absl::OkStatus();
  }

 private:
  enum class Phase {
    kRunning,   // -> kSettling: a worker has failed
    kSettling,  // -> kStopping: kSettleTime has passed, in which further failures may reveal the cause
    kStopping,  // -> kKilling: grace_ has passed since SIGTERM
    kKilling,   // SIGKILL was sent
  };

  void GoOn() {
    switch (phase_) {
      case Phase::kRunning:
        phase_ = Phase::kSettling;
        deadline_ = SteadyNow() + kSettleTime;
        return;
      case Phase::kSettling:
        phase_ = Phase::kStopping;
        processes_.Signal(SIGTERM);
        deadline_ = SteadyNow() + grace_;
        return;
      case Phase::kStopping:
      case Phase::kKilling:
        phase_ = Phase::kKilling;
        processes_.Signal(SIGKILL);
        deadline_ = SteadyTime::InfiniteFuture();
        return;
    }
  }

  void Note(Failure failure) {
    if (!Failed(failure)) return;
    // Exits caused by our own signals are not failures; an earlier failure may still be in the error file.
    const bool stopped = phase_ == Phase::kStopping || phase_ == Phase::kKilling;
    if (stopped && !HasErrorReport(failure)) return;
    if (stopped) failure.end.signaled = false;
    if (!first_.has_value() || Earlier(failure, *first_)) first_ = failure;
  }

  const int nprocs_;
  const absl::Duration grace_;
  std::vector<OwnedFd> error_files_;  // one per rank
  ProcessSet processes_;
  Phase phase_ = Phase::kRunning;
  SteadyTime deadline_ = SteadyTime::InfiniteFuture();
  std::optional<Failure> first_;
};

absl::Status CheckCall(int nprocs) {
  if (nprocs < 1) return absl::InvalidArgumentError(absl::StrCat("nprocs is ", nprocs, ", but must be at least 1"));
  if (const char* const rank = getenv(worker_contract::kRank); rank != nullptr && *rank != '\0') {
    return absl::FailedPreconditionError(
        absl::StrCat("this process is already a worker (RANK=", OneLine(rank, 40),
                     "); call RunWorker instead, or start the program without a launcher"));
  }
  struct sigaction action;
  if (sigaction(SIGCHLD, nullptr, &action) == 0 &&
      (action.sa_handler == SIG_IGN || (action.sa_flags & SA_NOCLDWAIT) != 0)) {
    return absl::FailedPreconditionError(
        "SIGCHLD is ignored, so exit codes of workers would be lost; reset it to SIG_DFL before Spawn");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Spawn(int nprocs, const SpawnOptions& options, absl::FunctionRef<absl::Status(Worker&)> body) {
  static std::atomic<int> calls = 0;
  static std::atomic<bool> busy = false;
  const int call = ++calls;
  if (const char* const text = getenv(kSpawnVariable)) {
    const std::optional<SpawnMark> mark = SpawnMark::FromText(text);
    if (!mark.has_value()) {
      return absl::FailedPreconditionError(absl::StrCat(kSpawnVariable, " was not set by Spawn; unset it"));
    }
    BecomeWorker(*mark, call, options, body);
    return absl::OkStatus();  // a worker of a later call: this call is skipped
  }
  absl::Status status = CheckCall(nprocs);
  if (!status.ok()) return status;
  if (busy.exchange(true)) {
    return absl::FailedPreconditionError("Spawn is already running in another thread of this process");
  }
  const absl::StatusOr<LocalStore> store = HostStore();
  status = store.status();
  if (status.ok()) {
    fflush(nullptr);  // buffered output must not be printed after the workers' lines
    Workers workers(nprocs, options.grace);
    status = workers.Start(call, store->port);
    if (status.ok()) status = workers.Watch();
  }
  busy = false;
  return status;
}

}  // namespace ddprun
