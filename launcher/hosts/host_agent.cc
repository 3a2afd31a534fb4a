#include "launcher/hosts/host_agent.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "base/socket_address.h"
#include "base/steady_time.h"
#include "base/stream_writer.h"
#include "launcher/hosts/host_job.h"
#include "launcher/hosts/remote_start.h"
#include "launcher/io/error_file.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/io/net.h"
#include "launcher/io/segmented_log.h"
#include "launcher/process/hardware.h"
#include "launcher/process/proc_files.h"
#include "launcher/process/resolve_program.h"
#include "launcher/process/run_command.h"
#include "launcher/process/spawn_process.h"
#include "proto/hosts.pb.h"
#include "rendezvous/server/listen.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {
namespace {

using hosts::v1::HostCommand;
using hosts::v1::HostReport;

constexpr absl::Duration kConnectPatience = absl::Seconds(5);
constexpr absl::Duration kUserTimeout = absl::Minutes(20);  // as that of the launcher's own listeners
constexpr int kMaxAddresses = 16;
constexpr absl::Duration kPythonPatience = absl::Seconds(50);

// Prints a line for each version, empty if it is unknown. Before Python 3.8 there is no importlib.metadata.
constexpr char kVersions[] = R"(import sys
def version(*names):
    try:
        import importlib.metadata as metadata
    except ImportError:
        return ""
    for name in names:
        try:
            return metadata.version(name) or ""
        except Exception:
            pass
    return ""
print(sys.version.split()[0])
print(version("torch"))
print(version("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11"))
)";

// "580.65.06"; empty without a driver.
std::string DriverVersion() {
  return std::string(absl::StripAsciiWhitespace(ReadSmallFile("/sys/module/nvidia/version")));
}

int64_t FreeBytes(const std::string& folder) {
  struct statvfs info;
  if (statvfs(folder.c_str(), &info) != 0) return 0;
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

int64_t HardLimit(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit;
  if (getrlimit(resource, &limit) != 0) return 0;
  return limit.rlim_max == RLIM_INFINITY ? -1 : static_cast<int64_t>(limit.rlim_max);
}

HostReport::Facts OwnFacts(const std::string& script) {
  HostReport::Facts facts;
  facts.set_host(Hostname());
  const absl::StatusOr<GpuCount> gpus = CountGpus(InspectGpus());
  facts.set_gpus(gpus.ok() ? gpus->visible : 0);
  facts.set_driver(DriverVersion());
  // All agents are the same program, so equal texts have equal hashes.
  if (!script.empty()) facts.set_script_hash(std::hash<std::string>()(ReadSmallFile(script)));
  facts.set_clock_nanos(absl::ToUnixNanos(absl::Now()));
  facts.set_max_open_files(HardLimit(RLIMIT_NOFILE));
  facts.set_max_locked_bytes(HardLimit(RLIMIT_MEMLOCK));
  facts.set_shm_free_bytes(FreeBytes("/dev/shm"));
  facts.set_tmp(TemporaryDirectory());
  facts.set_tmp_free_bytes(FreeBytes(facts.tmp()));
  return facts;
}

absl::Status CheckScript(const HostCommand::Prepare& prepare) {
  const std::string& script = prepare.script();
  if (script.empty()) return absl::OkStatus();
  if (prepare.program()) {
    const absl::StatusOr<std::string> program = ResolveProgram(script, SearchPath());
    return program.ok() ? absl::OkStatus() : absl::InvalidArgumentError(program.status().message());
  }
  if (access(script.c_str(), R_OK) == 0) {
    // Python runs folders and archives, too.
    std::error_code error;
    if (std::filesystem::is_regular_file(script, error) || std::filesystem::is_directory(script, error)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat("the script ", script, " is no file, so other hosts can't have it"));
  }
  if (errno == ENOENT) {
    return absl::InvalidArgumentError(absl::StrCat("there is no script ", script, " in ", prepare.folder(),
                                                   ": copy it there, or start from a folder that all hosts share"));
  }
  return absl::InvalidArgumentError(absl::StrCat("can't read the script ", script, ": ", strerror(errno)));
}

// Returns why the address can't be reached; empty: the word came from it.
std::string TryOne(const std::string& address, int port, const std::string& word) {
  const absl::StatusOr<SocketAddress> target = NumericAddress(address, port);
  if (!target.ok()) return "not an address";
  const UniqueFd fd(socket(target->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience = absl::ToTimeval(kConnectPatience);
  for (const int option : {SO_SNDTIMEO, SO_RCVTIMEO}) {
    setsockopt(fd.get(), SOL_SOCKET, option, &patience, sizeof(patience));
  }
  if (connect(fd.get(), target->get(), target->size) != 0) {
    return errno == EINPROGRESS || errno == EAGAIN ? "no answer" : strerror(errno);
  }
  std::string answer(word.size(), '\0');
  const ssize_t got = recv(fd.get(), answer.data(), answer.size(), MSG_WAITALL);
  return got == static_cast<ssize_t>(word.size()) && answer == word ? "" : "another program answers";
}

// Enters the working folder and sets the environment that `prepare` names, for this process. InvalidArgument: a line
// that says what is missing on this host: the folder, the script, the interpreter.
absl::Status PrepareHost(const HostCommand::Prepare& prepare) {
  for (const std::string& entry : prepare.environment()) {
    const std::pair<std::string, std::string> variable = absl::StrSplit(entry, absl::MaxSplits('=', 1));
    setenv(variable.first.c_str(), variable.second.c_str(), 1);
  }
  if (chdir(prepare.folder().c_str()) != 0) {
    const std::string what = absl::StrCat("can't enter the working folder ", prepare.folder(), ": ", strerror(errno));
    return absl::InvalidArgumentError(
        errno == ENOENT ? absl::StrCat(what, "; make it there, or start from a folder that all hosts share") : what);
  }
  setenv("PWD", prepare.folder().c_str(), 1);
  if (absl::Status status = CheckScript(prepare); !status.ok()) return status;
  if (prepare.python().empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> python = ResolveProgram(prepare.python(), SearchPath());
  if (python.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("there is no Python at ", prepare.python(),
                   ", which runs the script on the first host: make the same environment there, or set PYTHON_EXEC to "
                   "an interpreter that all hosts have"));
}

// Collects the facts of this host and passes them to `done` on the loop's thread; or an error, if the interpreter does
// not run. The versions of packages come from their metadata; nothing is imported. Returns the running interpreter, if
// any, which is killed when it is destroyed. REQUIRES: PrepareHost has succeeded.
absl::StatusOr<std::unique_ptr<Command>> CollectFacts(EventLoop* loop, const HostCommand::Prepare& prepare,
                                                      std::function<void(absl::StatusOr<HostReport::Facts>)> done) {
  const std::string script = prepare.program() ? "" : prepare.script();
  if (prepare.python().empty()) {
    done(OwnFacts(script));
    return nullptr;
  }
  const absl::StatusOr<std::string> python = ResolveProgram(prepare.python(), SearchPath());
  if (!python.ok()) return python.status();
  SpawnRequest request;
  request.program = *python;
  request.argv = {*python, "-c", kVersions};
  request.environment = OwnEnvironment();
  return Command::Run(loop, request, kPythonPatience, [done, script, python = *python](const std::string& answer) {
    const std::vector<std::string> lines = absl::StrSplit(answer, '\n');
    if (lines.size() < 4) {
      return done(
          absl::InvalidArgumentError(absl::StrCat(python, " does not run: see what `", python, " -V` says there")));
    }
    HostReport::Facts facts = OwnFacts(script);
    // Lines before them are of a sitecustomize.
    const size_t first = lines.size() - 4;
    facts.set_python(lines[first]);
    facts.set_torch(lines[first + 1]);
    facts.set_nccl(lines[first + 2]);
    done(std::move(facts));
  });
}

// Listens at all addresses of this host, and sends a word to each client, so that another program, or another host with
// the same private address, is not mistaken for it.
class ReachListener {
 public:
  ReachListener(EventLoop* loop, rendezvous::Listeners sockets, std::string word)
      : loop_(loop), sockets_(std::move(sockets)), word_(std::move(word)) {}
  ~ReachListener() { loop_->RemoveFd(fd()); }
  ReachListener(const ReachListener&) = delete;
  ReachListener& operator=(const ReachListener&) = delete;

  // ResourceExhausted: no port of the range is free.
  static absl::StatusOr<std::unique_ptr<ReachListener>> Open(EventLoop* loop, const HostCommand::Listen& request) {
    absl::StatusOr<rendezvous::Listeners> sockets = absl::ResourceExhaustedError("no port is free");
    for (int port = request.first_port(); !sockets.ok() && port <= request.last_port(); ++port) {
      sockets = rendezvous::Listen({"::", port}, kUserTimeout);
    }
    if (!sockets.ok() && request.first_port() > 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no port from ", request.first_port(), " to ", request.last_port(), " is free"));
    }
    if (!sockets.ok()) return sockets.status();
    auto listener = std::make_unique<ReachListener>(loop, *std::move(sockets), request.word());
    const absl::Status added = loop->AddFd(listener->fd(), EPOLLIN, [l = listener.get()](uint32_t) {
      const UniqueFd peer(accept4(l->fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      // The word fits into the socket's buffer.
      if (peer.valid()) (void)send(peer.get(), l->word_.data(), l->word_.size(), MSG_NOSIGNAL);
    });
    if (!added.ok()) return added;
    return listener;
  }

  HostReport::Listening Describe() const {
    HostReport::Listening result;
    result.set_port(sockets_.port);
    std::vector<InterfaceAddress> addresses = LocalAddresses();
    const std::string outward = OutwardAddress();
    // Names and routes of users mostly mean IPv4. Loopback is for several agents of one host.
    std::stable_sort(addresses.begin(), addresses.end(), [&](const InterfaceAddress& a, const InterfaceAddress& b) {
      const auto key = [&](const InterfaceAddress& x) { return std::tuple(x.loopback, x.address != outward, x.ipv6); };
      return key(a) < key(b);
    });
    for (const InterfaceAddress& address : addresses) {
      if (address.link_local || result.addresses_size() == kMaxAddresses) continue;
      HostReport::Address* const added = result.add_addresses();
      added->set_address(address.address);
      added->set_interface(address.interface);
    }
    return result;
  }

  // The socket becomes that of the host's rendezvous server, so that no other process gets the port meanwhile.
  int fd() const { return sockets_.fds.front(); }

 private:
  EventLoop* const loop_;
  const rendezvous::Listeners sockets_;
  const std::string word_;
};

// Connects to all addresses at once and waits for the word, a few seconds at most. Returns for each why it failed;
// empty: it did not.
std::vector<std::string> TryToReach(const HostCommand::Reach& request) {
  std::vector<std::future<std::string>> attempts;
  for (const std::string& address : request.addresses()) {
    attempts.push_back(std::async(std::launch::async, TryOne, address, request.port(), request.word()));
  }
  std::vector<std::string> errors;
  for (std::future<std::string>& attempt : attempts) errors.push_back(attempt.get());
  return errors;
}

constexpr size_t kMaxWaitingBytes = 1 << 20;            // of output on its way to the front
constexpr absl::Duration kSilence = absl::Seconds(60);  // of a keeper, which then hangs
constexpr absl::Duration kFlushLimit = absl::Milliseconds(200);

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
    if (is_owner_ && is_following_) {
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
        SendToKeeper(folder_, kRenewLease);
        if (std::exchange(holds_output_, command.ping().hold_output()) && !holds_output_) SendLog();
        return;
      case HostCommand::kGoodbye: return OnGoodbye();
      case HostCommand::KIND_NOT_SET: return;
    }
  }

  void Prepare(const HostCommand::Prepare& prepare) {
    token_ = prepare.token();
    folder_ = JobFolder(prepare.job());  // before the job's environment is set
    is_owner_ = !token_.empty();
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
    absl::StatusOr<std::unique_ptr<ReachListener>> listener = ReachListener::Open(loop_.get(), request);
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
    const absl::Status status = StartHostJob(folder_, token_, start, listener_ ? listener_->fd() : -1);
    listener_.reset();
    if (!status.ok()) return Fail(status);
    positions_ = {};
    is_owner_ = !start.detach();
    Follow();
  }

  void Follow() {
    is_following_ = true;
    HostReport report;
    report.mutable_following()->set_folder(folder_);
    Send(report);
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
        if (holds_output_ || writer_->waiting_bytes() > kMaxWaitingBytes) return;
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
    if (!ended && runs) return;
    if (!ended) ended.emplace().set_code(worker_contract::ExitCodeOfSignal(SIGKILL));
    HostReport report;
    *report.mutable_ended() = *std::move(ended);
    Send(report);
    has_sent_end_ = true;
    next_beat_ = SteadyTime::InfiniteFuture();
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
  std::string token_, folder_;
  std::unique_ptr<Command> collecting_;
  std::unique_ptr<ReachListener> listener_;
  std::unique_ptr<BackgroundCall<std::vector<std::string>>> reaching_;
  std::array<int64_t, 2> positions_{};  // in the launcher's stdout and stderr
  bool is_owner_ = false;               // the job ends with the front, and leaves nothing
  bool is_following_ = false;
  bool holds_output_ = false;
  bool has_sent_end_ = false;
  absl::Time keeper_beat_;
  SteadyTime keeper_beat_at_;
  SteadyTime next_beat_ = SteadyTime::InfiniteFuture();
};

}  // namespace

int RunHostAgent() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGHUP, SIG_IGN);  // the end of the connection, which the input shows too
  absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  const absl::Status status = loop.ok() ? HostAgent(*std::move(loop)).Run() : loop.status();
  if (status.ok()) return 0;
  Log(LogLevel::kError, status.message());
  return worker_contract::kExitFailed;
}

}  // namespace ddprun::launcher
