#include "launcher/hosts/host_job.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/steady_time.h"
#include "base/stream_writer.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/io/segmented_log.h"
#include "launcher/process/child_watch.h"
#include "launcher/process/proc_files.h"
#include "launcher/process/resolve_program.h"
#include "launcher/process/spawn_process.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {
namespace {

namespace fs = std::filesystem;
using hosts::v1::HostReport;

constexpr int kExecMillis = 30'000;
constexpr absl::Duration kStopLimit = absl::Seconds(120);  // for the launcher to stop its workers and save

// Fails if no process reads it.
UniqueFd OpenControl(const std::string& folder) {
  return UniqueFd(open((folder + "/control").c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
}

// The file appears under its name only when it is complete, also after a crash of the host.
void WriteResult(const std::string& folder, const HostReport::Ended& ended) {
  const std::string path = folder + "/result", part = path + ".part";
  const UniqueFd file(open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (WriteAll(file.get(), ended.SerializeAsString()) == 0 && fsync(file.get()) == 0)
    rename(part.c_str(), path.c_str());
}

// Runs the launcher, writes its log and its result, and stops it when its lease ends.
class Keeper {
 public:
  Keeper(std::string folder, bool has_lease) : folder_(std::move(folder)), has_lease_(has_lease) {}

  absl::Status Run(const std::vector<std::string>& arguments) {
    absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
    if (!loop.ok()) return loop.status();
    loop_ = *std::move(loop);
    absl::StatusOr<std::unique_ptr<ChildWatch>> children =
        ChildWatch::Create(loop_.get(), [this](const std::vector<ProcessEnd>& ends) { OnEnd(ends.front()); });
    if (!children.ok()) return children.status();
    children_ = *std::move(children);
    absl::Status status = loop_->AddFd(STDIN_FILENO, EPOLLIN, [this](uint32_t) { OnCommands(); });
    if (status.ok()) status = Spawn(arguments);
    if (!status.ok()) return status;
    std::error_code error;
    const fs::path program_folder = fs::read_symlink("/proc/self/exe", error).parent_path();
    SteadyTime next_beat = SteadyNow();
    if (has_lease_) lease_end_ = next_beat + kLease;
    const auto beat = [&](SteadyTime now) {
      next_beat = now + kHeartbeat;
      utimensat(AT_FDCWD, folder_.c_str(), nullptr, 0);
      // Copies in use must not become old, see kTidy.
      if (program_folder.parent_path() == CacheFolder()) utimensat(AT_FDCWD, program_folder.c_str(), nullptr, 0);
    };
    const auto timer = loop_->AddTimer(
        [&] {
          return std::min({next_beat, lease_end_, kill_at_});
        },
        [&](SteadyTime now) {
          if (next_beat <= now) beat(now);
          if (lease_end_ <= now) Stop(now);
          if (kill_at_ <= now) children_->SignalGroup(launcher_, SIGKILL);
          if (kill_at_ <= now) kill_at_ = SteadyTime::InfiniteFuture();
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
      const absl::Status added = loop_->AddFd(ends[0], EPOLLIN, [this, i](uint32_t) { (void)Copy(i); });
      if (!added.ok()) return added;
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
    absl::StatusOr<Child> child = CreateChild(request);
    if (!child.ok()) return child.status();
    launcher_ = child->pid;
    child->gate.Open();
    // The socket is the launcher's alone from now on.
    int listener;
    if (const char* text = getenv(kListenerFdVariable); text && absl::SimpleAtoi(text, &listener)) close(listener);
    return children_->Watch(*std::move(child));
  }

  void OnCommands() {
    uint8_t commands[64];
    const ssize_t got = read(STDIN_FILENO, commands, sizeof(commands));
    for (ssize_t i = 0; i < got; ++i) {
      if (commands[i] != kRenewLease && commands[i] != kFrontEnded) {
        children_->Signal(launcher_, commands[i]);
      } else if (has_lease_) {
        lease_end_ = SteadyNow() + (commands[i] == kRenewLease ? kLease : absl::ZeroDuration());
      }
    }
  }

  void Stop(SteadyTime now) {
    has_lease_ = false;
    lease_has_ended_ = true;
    lease_end_ = SteadyTime::InfiniteFuture();
    kill_at_ = now + kStopLimit;
    children_->Signal(launcher_, SIGTERM);
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
    if (lease_has_ended_) {
      RemoveHostJob(folder_);
    } else {
      WriteResult(folder_, ended);
    }
    loop_->Quit();
  }

  const std::string folder_;
  bool has_lease_;
  bool lease_has_ended_ = false;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<ChildWatch> children_;
  std::array<UniqueFd, 2> streams_;  // the launcher's stdout and stderr
  std::array<SegmentedLogWriter, 2> logs_ = {SegmentedLogWriter(LogStem(folder_, false)),
                                             SegmentedLogWriter(LogStem(folder_, true))};
  UniqueFd failure_;  // a file in memory, in which the launcher leaves a JobFailure
  pid_t launcher_ = -1;
  SteadyTime lease_end_ = SteadyTime::InfiniteFuture();
  SteadyTime kill_at_ = SteadyTime::InfiniteFuture();
};

absl::Status SpawnKeeper(const std::string& folder, const hosts::v1::HostCommand::Start& start, int listener) {
  const std::string control = folder + "/control";
  if (mkfifo(control.c_str(), 0600) != 0) return ErrnoStatus(errno, control);
  // Open for both, so that the keeper never reads an end of file.
  const UniqueFd fifo(open(control.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  SpawnRequest request;
  request.program = "/proc/self/exe";
  request.argv = {"ddprun", kKeeperArgument, folder, start.detach() ? "detached" : "lease"};
  request.argv.insert(request.argv.end(), start.arguments().begin(), start.arguments().end());
  request.environment = OwnEnvironment();
  if (listener >= 0) {
    request.environment.push_back(absl::StrCat(kListenerFdVariable, "=", listener));
    request.passed_fds = {listener};
  }
  request.stdin_fd = fifo.get();
  request.stdout_fd = request.stderr_fd = null.get();
  request.dies_with_parent = false;
  absl::StatusOr<Child> child = CreateChild(request);
  if (!child.ok()) return child.status();
  child->gate.Open();
  // Until its exec, which closes its end of the gate, it may be in this process's group, and would be killed with it.
  pollfd executed{child->gate.fd(), POLLIN, 0};
  poll(&executed, 1, kExecMillis);
  const std::optional<int> error = child->gate.TakeError();
  return error ? ExplainExecError("ddprun", *error) : absl::OkStatus();
}

}  // namespace

std::string CacheFolder() {
  const char* const cache = getenv("XDG_CACHE_HOME");
  const char* const home = getenv("HOME");
  const bool has_cache = cache != nullptr && *cache != '\0';
  return has_cache ? absl::StrCat(cache, "/ddprun") : absl::StrCat(home == nullptr ? "" : home, "/.cache/ddprun");
}

std::string JobFolder(const std::string& name) { return absl::StrCat(CacheFolder(), "/jobs/", name); }

absl::Status MakeFolder(const std::string& path) {
  const mode_t old = umask(077);
  std::error_code error;
  fs::create_directories(path, error);
  umask(old);
  return error ? ErrnoStatus(error.value(), path) : absl::OkStatus();
}

absl::Status StartHostJob(const std::string& folder, const std::string& token,
                          const hosts::v1::HostCommand::Start& start, int listener) {
  const std::string above = fs::path(folder).parent_path();
  if (absl::Status status = MakeFolder(above); !status.ok()) return status;
  // One start at a time: another one may be about to replace the folder of a job that has ended.
  const UniqueFd parent(open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  flock(parent.get(), LOCK_EX);
  const absl::StatusOr<bool> has_job = HasHostJob(folder, token);
  if (!has_job.ok() || *has_job) return has_job.status();
  std::error_code error;
  fs::remove_all(folder, error);
  if (absl::Status status = MakeFolder(folder); !status.ok()) return status;
  const UniqueFd file(open((folder + "/token").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (WriteAll(file.get(), token) != 0) return ErrnoStatus(errno, folder);
  return SpawnKeeper(folder, start, listener);
}

void RemoveHostJob(const std::string& folder) {
  const std::string above = fs::path(folder).parent_path();
  const UniqueFd parent(open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  flock(parent.get(), LOCK_EX);  // against a start that replaces it
  std::error_code error;
  fs::remove_all(folder, error);
  fs::remove(above, error);  // if it is empty
}

absl::StatusOr<bool> HasHostJob(const std::string& folder, const std::string& token) {
  const bool runs = KeeperRuns(folder);
  const bool is_wanted = token.empty() || ReadSmallFile(folder + "/token") == token;
  if (is_wanted && (runs || ResultOf(folder))) return true;
  if (runs) return absl::AlreadyExistsError("another job with this id runs here: give this one another --rdzv-id");
  if (token.empty()) return absl::NotFoundError("it has no job with this --rdzv-id");
  return false;
}

bool KeeperRuns(const std::string& folder) { return OpenControl(folder).valid(); }

void SendToKeeper(const std::string& folder, uint8_t command) {
  const UniqueFd control = OpenControl(folder);
  if (write(control.get(), &command, 1) != 1) return;  // no keeper runs, or it hangs
}

std::optional<HostReport::Ended> ResultOf(const std::string& folder) {
  const std::string path = folder + "/result";
  HostReport::Ended ended;
  if (access(path.c_str(), F_OK) != 0 || !ended.ParseFromString(ReadSmallFile(path))) return std::nullopt;
  return ended;
}

std::string LogStem(const std::string& folder, bool is_stderr) { return folder + (is_stderr ? "/stderr" : "/stdout"); }

int RunHostKeeper(const std::vector<std::string>& arguments) {
  // The launcher handles these; a keeper ends with it.
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) signal(number, SIG_IGN);
  const std::string& folder = arguments[1];
  const absl::Status status = Keeper(folder, arguments[2] == "lease").Run({arguments.begin() + 3, arguments.end()});
  if (status.ok()) return 0;
  SegmentedLogWriter(LogStem(folder, /*is_stderr=*/true)).Write(absl::StrCat("ddprun: ", status.message(), "\n"));
  HostReport::Ended ended;
  ended.set_code(worker_contract::kExitFailed);
  WriteResult(folder, ended);
  return worker_contract::kExitFailed;
}

}  // namespace ddprun::launcher
