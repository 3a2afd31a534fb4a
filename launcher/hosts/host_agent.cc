#include "launcher/hosts/host_agent.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "base/stream_writer.h"
#include "launcher/hosts/remote_start.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/io/segmented_log.h"
#include "launcher/preflight/address_probe.h"
#include "launcher/preflight/host_facts.h"
#include "launcher/process/child_watch.h"
#include "launcher/process/proc_files.h"
#include "launcher/process/resolve_program.h"
#include "launcher/process/run_command.h"
#include "launcher/process/spawn_process.h"
#include "proto/hosts.pb.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {
namespace {

namespace fs = std::filesystem;
using hosts::v1::HostCommand;
using hosts::v1::HostReport;

constexpr absl::Duration kHeartbeat = absl::Seconds(5);
constexpr absl::Duration kSilence = absl::Seconds(60);  // a keeper that is silent this long hangs
constexpr absl::Duration kFlushLimit = absl::Milliseconds(200);
constexpr absl::Duration kStopLimit = absl::Seconds(120);  // for the launcher to stop its workers and save
constexpr int kExecMillis = 30'000;
constexpr size_t kMaxWaitingBytes = 1 << 20;  // output on its way to the front

// ---- the folder of a job -------------------------------------------------------------------------------------------

// $XDG_CACHE_HOME/ddprun, with a folder for each version of the program that was copied there, and `jobs`.
std::string CacheFolder() {
  const char* const cache = getenv("XDG_CACHE_HOME");
  const char* const home = getenv("HOME");
  const bool has_cache = cache != nullptr && *cache != '\0';
  return has_cache ? absl::StrCat(cache, "/ddprun") : absl::StrCat(home == nullptr ? "" : home, "/.cache/ddprun");
}

// Fails if no process reads it.
UniqueFd OpenControl(const std::string& folder) {
  return UniqueFd(open((folder + "/control").c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
}

bool KeeperRuns(const std::string& folder) { return OpenControl(folder).valid(); }

// No-op if no keeper runs.
void SendToKeeper(const std::string& folder, uint8_t command) {
  const UniqueFd control = OpenControl(folder);
  if (write(control.get(), &command, 1) != 1) return;  // no keeper runs, or it hangs
}

// The file appears under its name only when it is complete, also after a crash of the host.
void WriteResult(const std::string& folder, const HostReport::Ended& ended) {
  ReplaceFile(folder + "/result", ended.SerializeAsString(), 0600).IgnoreError();
}

// Absent: the launcher has not ended, or its keeper was killed.
std::optional<HostReport::Ended> ResultOf(const std::string& folder) {
  const std::string path = folder + "/result";
  HostReport::Ended ended;
  if (access(path.c_str(), F_OK) != 0 || !ended.ParseFromString(ReadSmallFile(path))) return std::nullopt;
  return ended;
}

// Stem of the log of the launcher's stdout or stderr (segmented_log.h).
std::string LogStem(const std::string& folder, bool is_stderr) { return folder + (is_stderr ? "/stderr" : "/stdout"); }

// False: the lease of this start has ended, or its folder was removed or replaced.
bool HasToken(const std::string& folder, const std::string& token) { return ReadSmallFile(folder + "/token") == token; }

absl::Status LeaseHasEnded() {
  return absl::UnavailableError("the launcher of this job stops here, because its lease has ended");
}

// True if the start of the job with this token, or any for an empty one, runs or has ended there. AlreadyExists:
// another one runs. Unavailable: a launcher stops, whose lease has ended. NotFound: any was wanted, and there is none.
absl::StatusOr<bool> HasHostJob(const std::string& folder, const std::string& token) {
  const bool runs = KeeperRuns(folder);
  if (runs && HasToken(folder, "")) return LeaseHasEnded();
  const bool is_wanted = token.empty() || HasToken(folder, token);
  if (is_wanted && (runs || ResultOf(folder))) return true;
  if (runs) return absl::AlreadyExistsError("another job with this id runs here: give this one another --rdzv-id");
  if (token.empty()) return absl::NotFoundError("it has no job with this --rdzv-id");
  return false;
}

// Removes the folder. REQUIRES: the launcher has ended.
void RemoveHostJob(const std::string& folder) {
  const std::string above = fs::path(folder).parent_path();
  const UniqueFd parent(open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  flock(parent.get(), LOCK_EX);  // against a start that replaces it
  std::error_code error;
  fs::remove_all(folder, error);
  fs::remove(above, error);  // if it is empty
}

// ---- the keeper ----------------------------------------------------------------------------------------------------

// Runs the launcher, writes its log and its result, and stops it when its lease ends.
class Keeper {
 public:
  Keeper(std::string folder, HostLease lease) : folder_(std::move(folder)), lease_(lease) {}

  absl::Status Run(const std::vector<std::string>& arguments) {
    DDPRUN_ASSIGN_OR_RETURN(loop_, EventLoop::Create());
    DDPRUN_ASSIGN_OR_RETURN(children_, ChildWatch::Create(loop_.get(), [this](const std::vector<ProcessEnd>& ends) {
                              OnEnd(ends.front());
                            }));
    DDPRUN_RETURN_IF_ERROR(loop_->AddFd(STDIN_FILENO, EPOLLIN, [this](uint32_t) { OnCommands(); }));
    DDPRUN_RETURN_IF_ERROR(Spawn(arguments));
    std::error_code error;
    const fs::path program_folder = fs::read_symlink("/proc/self/exe", error).parent_path();
    SteadyTime next_beat = SteadyNow();
    const auto beat = [&](SteadyTime now) {
      next_beat = now + kHeartbeat;
      utimensat(AT_FDCWD, folder_.c_str(), nullptr, 0);
      // Copies in use must not become old, see kTidy.
      if (program_folder.parent_path() == CacheFolder()) utimensat(AT_FDCWD, program_folder.c_str(), nullptr, 0);
    };
    const auto timer = loop_->AddTimer([&] { return std::min(next_beat, lease_.NextDeadline()); },
                                       [&](SteadyTime now) {
                                         if (next_beat <= now) beat(now);
                                         const int signal = lease_.TakeSignal(now);
                                         if (signal == SIGKILL) children_->SignalGroup(launcher_, signal);
                                         if (signal != SIGTERM) return;
                                         unlink((folder_ + "/token").c_str());
                                         children_->Signal(launcher_, signal);
                                       });
    loop_->Run();
    return absl::OkStatus();
  }

 private:
  absl::Status Spawn(const std::vector<std::string>& arguments) {
    SpawnRequest request;
    std::array<UniqueFd, 2> theirs;
    for (size_t i = 0; i < theirs.size(); ++i) {
      int ends[2];
      if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe2");
      streams_[i].reset(ends[0]);
      theirs[i].reset(ends[1]);
      fcntl(ends[0], F_SETFL, O_NONBLOCK);
      DDPRUN_RETURN_IF_ERROR(loop_->AddFd(ends[0], EPOLLIN, [this, i](uint32_t) { (void)Copy(i); }));
    }
    failure_.reset(memfd_create("failure", MFD_CLOEXEC));
    const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    request.program = "/proc/self/exe";
    request.argv = {"ddprun"};
    request.argv.insert(request.argv.end(), arguments.begin(), arguments.end());
    request.environment = OwnEnvironment();
    request.environment.push_back(absl::StrCat(kFailureFdVariable, "=", failure_.get()));
    request.passed_fds = {failure_.get()};
    request.stdin_fd = null.get();
    request.stdout_fd = theirs[0].get();
    request.stderr_fd = theirs[1].get();
    DDPRUN_ASSIGN_OR_RETURN(Child child, CreateChild(request));
    launcher_ = child.pid;
    child.gate.Open();
    // The socket is the launcher's alone from now on.
    int listener;
    if (const char* text = getenv(kListenerFdVariable); text && absl::SimpleAtoi(text, &listener)) close(listener);
    return children_->Watch(std::move(child));
  }

  void OnCommands() {
    uint8_t commands[64];
    const ssize_t got = read(STDIN_FILENO, commands, sizeof(commands));
    for (ssize_t i = 0; i < got; ++i) {
      switch (commands[i]) {
        case kRenewLease: lease_.Renew(SteadyNow()); break;
        case kFrontEnded: lease_.EndNow(SteadyNow()); break;
        default: children_->Signal(launcher_, commands[i]);
      }
    }
  }

  // False: nothing more comes, for now or ever.
  bool Copy(size_t stream) {
    char buffer[64 << 10];
    const ssize_t got = read(streams_[stream].get(), buffer, sizeof(buffer));
    if (got > 0) logs_[stream].Write(absl::string_view(buffer, got));
    if (got == 0) loop_->RemoveFd(streams_[stream].get());
    return got > 0 || (got < 0 && errno == EINTR);
  }

  void OnEnd(const ProcessEnd& end) {
    for (size_t i = 0; i < streams_.size(); ++i) {
      while (Copy(i)) {
      }
    }
    HostReport::Ended ended;
    ended.set_code(end.ExitCode());
    if (lseek(failure_.get(), 0, SEEK_END) > 0 && lseek(failure_.get(), 0, SEEK_SET) == 0) {
      (void)ended.mutable_failure()->ParseFromFileDescriptor(failure_.get());
    }
    if (lease_.has_ended()) {
      RemoveHostJob(folder_);
    } else {
      WriteResult(folder_, ended);
    }
    loop_->Quit();
  }

  const std::string folder_;
  HostLease lease_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<ChildWatch> children_;
  std::array<UniqueFd, 2> streams_;  // the launcher's stdout and stderr
  std::array<SegmentedLogWriter, 2> logs_ = {SegmentedLogWriter(LogStem(folder_, false)),
                                             SegmentedLogWriter(LogStem(folder_, true))};
  UniqueFd failure_;  // a file in memory, in which the launcher leaves a JobFailure
  pid_t launcher_ = -1;
};

absl::Status SpawnKeeper(const std::string& folder, bool detach, const hosts::v1::HostCommand::Start& start,
                         int listener) {
  const std::string control = folder + "/control";
  if (mkfifo(control.c_str(), 0600) != 0) return ErrnoStatus(errno, control);
  // Open for both, so that the keeper never reads an end of file.
  const UniqueFd fifo(open(control.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  SpawnRequest request;
  request.program = "/proc/self/exe";
  request.argv = {"ddprun", kKeeperArgument, folder, detach ? "detached" : "lease"};
  request.argv.insert(request.argv.end(), start.arguments().begin(), start.arguments().end());
  request.environment = OwnEnvironment();
  if (listener >= 0) {
    request.environment.push_back(absl::StrCat(kListenerFdVariable, "=", listener));
    request.passed_fds = {listener};
  }
  request.stdin_fd = fifo.get();
  request.stdout_fd = request.stderr_fd = null.get();
  request.dies_with_parent = false;
  DDPRUN_ASSIGN_OR_RETURN(Child child, CreateChild(request));
  child.gate.Open();
  // Until its exec, which closes its end of the gate, it may be in this process's group, and would be killed with it.
  pollfd executed{child.gate.fd(), POLLIN, 0};
  poll(&executed, 1, kExecMillis);
  const std::optional<int> error = child.gate.TakeError();
  return error ? ExplainExecError("ddprun", *error) : absl::OkStatus();
}

// Starts a keeper with a launcher, unless that was done before with this token. `listener` becomes the launcher's; -1:
// none. Errors of HasHostJob. Call it from the main thread.
absl::Status StartHostJob(const std::string& folder, const std::string& token, bool detach,
                          const hosts::v1::HostCommand::Start& start, int listener) {
  const std::string above = fs::path(folder).parent_path();
  DDPRUN_RETURN_IF_ERROR(MakeFolder(above));
  // One start at a time: another one may be about to replace the folder of a job that has ended.
  const UniqueFd parent(open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  flock(parent.get(), LOCK_EX);
  const absl::StatusOr<bool> has_job = HasHostJob(folder, token);
  if (!has_job.ok() || *has_job) return has_job.status();
  std::error_code error;
  fs::remove_all(folder, error);
  DDPRUN_RETURN_IF_ERROR(MakeFolder(folder));
  DDPRUN_RETURN_IF_ERROR(WriteNewFile(folder + "/token", token, 0600));
  return SpawnKeeper(folder, detach, start, listener);
}

// ---- the agent -----------------------------------------------------------------------------------------------------

class HostAgent {
 public:
  explicit HostAgent(std::unique_ptr<EventLoop> loop) : loop_(std::move(loop)) {}

  absl::Status Run() {
    // The threads of the writer may outlive it, so the descriptors stay open.
    const int drained = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    inotify_.reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (drained < 0 || !inotify_.valid()) return ErrnoStatus(errno, "eventfd or inotify");
    if (fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK) != 0) return ErrnoStatus(errno, "fcntl");
    writer_ = std::make_unique<StreamWriter>(
        StreamWriter::Options{.fd = STDOUT_FILENO, .max_bytes = SIZE_MAX, .drained_event = drained});
    absl::Status status = loop_->AddFd(STDIN_FILENO, EPOLLIN, [this](uint32_t) { OnInput(); });
    for (const int fd : {drained, inotify_.get()}) {
      if (!status.ok()) return status;
      status = loop_->AddFd(fd, EPOLLIN, [this, fd](uint32_t) {
        char events[4096];
        while (read(fd, events, sizeof(events)) > 0) {
        }
        SendLog();
      });
    }
    const auto timer = loop_->AddTimer([this] { return next_beat_; }, [this](SteadyTime now) { OnTimer(now); });
    if (status.ok()) loop_->Run();
    (void)writer_->Flush(SteadyNow() + kFlushLimit);
    return status;
  }

 private:
  void OnInput() {
    char buffer[64 << 10];
    const ssize_t got = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return loop_->Quit();
    input_.append(buffer, got);
    bool error = false;
    HostCommand command;
    while (TakeFrame(&input_, &command, &error)) Handle(command);
    if (error) loop_->Quit();
  }

  // The output of a detached job stays.
  void OnGoodbye() {
    if (is_following_ && !token_.empty() && HasToken(folder_, token_)) {
      if (has_sent_end_ || !KeeperRuns(folder_)) {
        RemoveHostJob(folder_);
      } else {
        SendToKeeper(folder_, kFrontEnded);
      }
    }
    loop_->Quit();
  }

  void OnTimer(SteadyTime now) {
    next_beat_ = now + kHeartbeat;
    HostReport report;
    report.mutable_alive();
    Send(report);
    SendLog();
    struct stat info;
    if (stat(folder_.c_str(), &info) != 0) return;
    const absl::Time beat = absl::TimeFromTimespec(info.st_mtim);
    if (std::exchange(keeper_beat_, beat) != beat) {
      keeper_beat_at_ = now;
    } else if (now - keeper_beat_at_ >= kSilence) {
      keeper_beat_at_ = now;
      Fail(absl::DeadlineExceededError(
          "its launcher's keeper shows no sign of life for 60 s (a file system that hangs?)"));
    }
  }

  void Handle(const HostCommand& command) {
    switch (command.kind_case()) {
      case HostCommand::kPrepare: return Prepare(command.prepare());
      case HostCommand::kListen: return Listen(command.listen());
      case HostCommand::kReach: return Reach(command.reach());
      case HostCommand::kStart: return Start(command.start());
      case HostCommand::kSignal: SendToKeeper(folder_, static_cast<uint8_t>(command.signal().number())); return;
      case HostCommand::kPing:
        if (!token_.empty()) SendToKeeper(folder_, kRenewLease);
        holds_output_ = {command.ping().hold_stdout(), command.ping().hold_stderr()};
        return SendLog();
      case HostCommand::kGoodbye: return OnGoodbye();
      case HostCommand::KIND_NOT_SET: return;
    }
  }

  void Prepare(const HostCommand::Prepare& prepare) {
    token_ = prepare.token();
    folder_ = JobFolder(prepare.job());  // before the job's environment is set
    detach_ = prepare.detach();
    const absl::StatusOr<bool> has_job = HasHostJob(folder_, token_);
    if (!has_job.ok()) return Fail(has_job.status());
    if (*has_job) {
      positions_ = {prepare.positions(0), prepare.positions(1)};
      return Follow();
    }
    if (const absl::Status status = PrepareHost(prepare); !status.ok()) return Fail(status);
    absl::StatusOr<std::unique_ptr<Command>> collecting =
        CollectFacts(loop_.get(), prepare, [this](absl::StatusOr<HostReport::Facts> facts) {
          if (!facts.ok()) return Fail(facts.status());
          HostReport report;
          *report.mutable_facts() = *std::move(facts);
          Send(report);
        });
    if (!collecting.ok()) return Fail(collecting.status());
    collecting_ = *std::move(collecting);
  }

  void Listen(const HostCommand::Listen& request) {
    absl::StatusOr<std::unique_ptr<ProbedListener>> listener = ProbedListener::Open(loop_.get(), request);
    if (!listener.ok()) return Fail(listener.status());
    listener_ = *std::move(listener);
    HostReport report;
    *report.mutable_listening() = listener_->Describe();
    Send(report);
  }

  void Reach(const HostCommand::Reach& request) {
    reaching_ = std::make_unique<BackgroundCall<std::vector<std::string>>>(
        loop_.get(), [request] { return TryToReach(request); },
        [this](std::vector<std::string> errors) {
          HostReport report;
          report.mutable_reached()->mutable_errors()->Add(errors.begin(), errors.end());
          Send(report);
        });
  }

  void Start(const HostCommand::Start& start) {
    const absl::Status status = StartHostJob(folder_, token_, detach_, start, listener_ ? listener_->fd() : -1);
    listener_.reset();
    if (!status.ok()) return Fail(status);
    positions_ = {};
    Follow();
  }

  void Follow() {
    HostReport report;
    report.mutable_following()->set_folder(folder_);
    Send(report);
    if (detach_) return;
    is_following_ = true;
    inotify_add_watch(inotify_.get(), folder_.c_str(), IN_MODIFY | IN_CREATE | IN_MOVED_TO);
    keeper_beat_at_ = SteadyNow();
    next_beat_ = keeper_beat_at_ + kHeartbeat;
    SendLog();
  }

  // Sends what the launcher has written, as far as the front takes it, and then its end.
  void SendLog() {
    if (!is_following_ || has_sent_end_) return;
    // In this order: nothing is written after the end.
    const bool runs = KeeperRuns(folder_);
    std::optional<HostReport::Ended> ended = ResultOf(folder_);
    for (bool any = true; std::exchange(any, false);) {
      for (const bool is_stderr : {false, true}) {
        if (writer_->waiting_bytes() > kMaxWaitingBytes) return;
        if (holds_output_[is_stderr]) continue;
        LogPiece piece = ReadSegmentedLog(LogStem(folder_, is_stderr), positions_[is_stderr]);
        if (piece.bytes.empty()) continue;
        any = true;
        positions_[is_stderr] = piece.position;
        HostReport report;
        report.mutable_output()->set_is_stderr(is_stderr);
        report.mutable_output()->set_data(std::move(piece.bytes));
        report.mutable_output()->set_position(piece.position);
        report.mutable_output()->set_lost(piece.lost);
        Send(report);
      }
    }
    if ((!ended && runs) || holds_output_[false] || holds_output_[true]) return;
    has_sent_end_ = true;
    next_beat_ = SteadyTime::InfiniteFuture();
    // The end of the lease is not the job's end: the front may start another launcher here.
    if (!ended && !token_.empty() && !HasToken(folder_, token_)) return Fail(LeaseHasEnded());
    if (!ended) ended.emplace().set_code(worker_contract::ExitCodeOfSignal(SIGKILL));
    HostReport report;
    *report.mutable_ended() = *std::move(ended);
    Send(report);
  }

  void Fail(const absl::Status& status) {
    HostReport report;
    report.mutable_failed()->set_reason(std::string(status.message()));
    Send(report);
  }

  void Send(const HostReport& report) {
    std::string frame;
    AppendFrame(report, &frame);
    writer_->Write(frame);
  }

  const std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<StreamWriter> writer_;
  std::string input_;
  UniqueFd inotify_;
  std::string token_, folder_;  // without a token this front only follows the job
  bool detach_ = false;
  std::unique_ptr<Command> collecting_;
  std::unique_ptr<ProbedListener> listener_;
  std::unique_ptr<BackgroundCall<std::vector<std::string>>> reaching_;
  std::array<int64_t, 2> positions_{};  // in the launcher's stdout and stderr; so for the others
  bool is_following_ = false;
  std::array<bool, 2> holds_output_{};
  bool has_sent_end_ = false;
  absl::Time keeper_beat_;
  SteadyTime keeper_beat_at_;
  SteadyTime next_beat_ = SteadyTime::InfiniteFuture();
};

}  // namespace

int HostLease::TakeSignal(SteadyTime now) {
  if (end_ <= now) {
    has_ended_ = true;
    end_ = SteadyTime::InfiniteFuture();
    kill_at_ = now + kStopLimit;
    return SIGTERM;
  }
  if (kill_at_ > now) return 0;
  kill_at_ = SteadyTime::InfiniteFuture();
  return SIGKILL;
}

std::string JobFolder(const std::string& name) { return absl::StrCat(CacheFolder(), "/jobs/", name); }

absl::Status MakeFolder(const std::string& path) {
  const mode_t old = umask(077);
  std::error_code error;
  fs::create_directories(path, error);
  umask(old);
  return error ? ErrnoStatus(error.value(), path) : absl::OkStatus();
}

int RunHostAgent() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGHUP, SIG_IGN);  // the end of the connection, which the input shows too
  absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  const absl::Status status = loop.ok() ? HostAgent(*std::move(loop)).Run() : loop.status();
  if (status.ok()) return 0;
  Log(LogLevel::kError, status.message());
  return worker_contract::kExitFailed;
}

int RunHostKeeper(const std::vector<std::string>& arguments) {
  // The launcher handles these; a keeper ends with it.
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) signal(number, SIG_IGN);
  const std::string& folder = arguments[1];
  const HostLease lease = arguments[2] == "lease" ? HostLease(SteadyNow()) : HostLease();
  const absl::Status status = Keeper(folder, lease).Run({arguments.begin() + 3, arguments.end()});
  if (status.ok()) return 0;
  SegmentedLogWriter(LogStem(folder, /*is_stderr=*/true)).Write(absl::StrCat("ddprun: ", status.message(), "\n"));
  HostReport::Ended ended;
  ended.set_code(worker_contract::kExitFailed);
  WriteResult(folder, ended);
  return worker_contract::kExitFailed;
}

}  // namespace ddprun::launcher
