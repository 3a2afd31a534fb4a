#include "launcher/hosts/host_agent.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/hostname.h"
#include "base/log.h"
#include "base/steady_time.h"
#include "launcher/hosts/cache_folder.h"
#include "launcher/hosts/failure_message.h"
#include "launcher/hosts/frames.h"
#include "launcher/hosts/node_facts.h"
#include "launcher/hosts/pipe_writer.h"
#include "launcher/hosts/reach_probe.h"
#include "launcher/hosts/session_socket.h"
#include "launcher/os/background_call.h"
#include "launcher/os/child_watch.h"
#include "launcher/os/errno_status.h"
#include "launcher/os/event_loop.h"
#include "launcher/os/own_environment.h"
#include "launcher/os/resolve_program.h"
#include "launcher/os/spawn_process.h"
#include "launcher/os/start_gate.h"
#include "launcher/os/unique_fd.h"
#include "proto/hosts.pb.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {
namespace {

using hosts::v1::HostCommand;
using hosts::v1::HostReport;

constexpr absl::Duration kSilence = absl::Seconds(60);  // of the other side, which is then lost
constexpr absl::Duration kCloseTime = absl::Milliseconds(50);
constexpr absl::Duration kStopLimit = absl::Seconds(120);  // for the launcher, after SIGTERM
constexpr size_t kMaxWaitingBytes = 4 << 20;               // of output; the launcher waits meanwhile

class HostAgent {
 public:
  HostAgent(std::unique_ptr<EventLoop> loop, bool is_front_here)
      : loop_(std::move(loop)), is_front_here_(is_front_here) {}
  ~HostAgent() {
    for (const UniqueFd* fd : {&input_fd_, &session_, &other_agent_}) {
      if (fd->valid()) loop_->RemoveFd(fd->get());
    }
    if (gate_.fd() >= 0) loop_->RemoveFd(gate_.fd());
    for (const UniqueFd& stream : streams_) {
      if (stream.valid()) loop_->RemoveFd(stream.get());
    }
  }

  int Run() {
    absl::Status status = SetUp();
    if (!status.ok()) {
      Log(LogLevel::kError, status.message());
      return worker_contract::kExitFailed;
    }
    loop_->Run();
    return 0;
  }

 private:
  absl::Status SetUp() {
    absl::StatusOr<std::unique_ptr<PipeWriter>> writer =
        PipeWriter::Create(loop_.get(), UniqueFd(dup(STDOUT_FILENO)), [this] { OnOutputTaken(); });
    if (!writer.ok()) return writer.status();
    writer_ = *std::move(writer);
    absl::StatusOr<std::unique_ptr<ChildWatch>> children = ChildWatch::Create(loop_.get(), [this](auto ends) {
      for (const ProcessEnd& end : ends) OnLauncherEnd(end);
    });
    if (!children.ok()) return children.status();
    children_ = *std::move(children);
    heard_ = SteadyNow();
    loop_->SetTimer([this] { return NextDeadline(); }, [this](SteadyTime now) { OnDeadline(now); });
    return ReadFrom(UniqueFd(dup(STDIN_FILENO)));
  }

  absl::Status ReadFrom(UniqueFd fd) {
    input_fd_ = std::move(fd);
    if (fcntl(input_fd_.get(), F_SETFL, O_NONBLOCK) != 0) return ErrnoStatus(errno, "fcntl");
    return loop_->AddFd(input_fd_.get(), EPOLLIN, [this](uint32_t) { OnInput(); });
  }

  SteadyTime NextDeadline() const {
    if (kill_at_) return *kill_at_;
    if (input_ended_at_) return *input_ended_at_ + kCloseTime;
    if (give_up_at_) return *give_up_at_;
    return is_lost_ || handed_over_ ? SteadyTime::InfiniteFuture() : heard_ + kSilence;
  }

  void OnDeadline(SteadyTime now) {
    if (kill_at_ && *kill_at_ <= now) {
      kill_at_.reset();
      children_->SignalGroup(launcher_, SIGKILL);
    } else if (input_ended_at_ && *input_ended_at_ + kCloseTime <= now) {
      may_reconnect_ = !writer_->HasReader();
      OnLost();
    } else if (give_up_at_ && *give_up_at_ <= now) {
      give_up_at_.reset();
      Stop();
    } else if (!is_lost_ && !handed_over_ && heard_ + kSilence <= now) {
      may_reconnect_ = false;  // it has had its time
      OnLost();
    }
  }

  void OnInput() {
    char buffer[64 << 10];
    const ssize_t got = read(input_fd_.get(), buffer, sizeof(buffer));
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return OnInputEnd();
    heard_ = SteadyNow();
    input_.append(buffer, got);
    HandleInput();
  }

  void HandleInput() {
    bool error = false;
    while (std::optional<std::string> frame = TakeFrame(&input_, &error)) {
      HostCommand command;
      if (!command.ParseFromString(*frame)) error = true;
      if (error) break;
      Handle(command);
    }
    if (error) OnLost();
  }

  void Handle(const HostCommand& command) {
    switch (command.kind_case()) {
      case HostCommand::kPrepare: return Prepare(command.prepare());
      case HostCommand::kListen: return Listen(command.listen());
      case HostCommand::kReach: return Reach(command.reach());
      case HostCommand::kStart: return Start(command.start());
      case HostCommand::kSignal: children_->Signal(launcher_, command.signal().number()); return;
      case HostCommand::kPing:
      case HostCommand::KIND_NOT_SET: return;
    }
  }

  void Prepare(const HostCommand::Prepare& prepare) {
    if (!prepare.session().empty() && !HasSession(prepare)) return;
    tidying_ = std::make_unique<BackgroundCall<bool>>(
        loop_.get(), [cache = CacheFolder()] { return RemoveOldCacheFiles(cache, absl::Now()), true; }, [](bool) {});
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

  // False: an earlier agent of this job is still there. Either it takes over the connection of this one, or it ends,
  // and then this one continues.
  bool HasSession(const HostCommand::Prepare& prepare) {
    absl::StatusOr<UniqueFd> session = ListenInSession(prepare.session());
    if (session.ok()) {
      session_ = *std::move(session);
      return loop_->AddFd(session_.get(), EPOLLIN, [this](uint32_t) { OnLaterAgent(); }).ok();
    }
    if (!absl::IsAlreadyExists(session.status())) return true;
    absl::StatusOr<UniqueFd> earlier = ConnectToSession(prepare.session());
    if (absl::IsPermissionDenied(earlier.status())) return true;
    if (!earlier.ok()) {  // it has just ended
      loop_->Post([this, prepare] { Prepare(prepare); });
      return false;
    }
    other_agent_ = *std::move(earlier);
    const absl::Status added =
        loop_->AddFd(other_agent_.get(), EPOLLIN, [this, prepare](uint32_t) { OnEarlierAgent(prepare); });
    if (!added.ok()) Fail(added);
    return false;
  }

  void OnEarlierAgent(const HostCommand::Prepare& prepare) {
    char invitation;
    if (recv(other_agent_.get(), &invitation, 1, 0) == 1) {
      // From now on only one process reads the input.
      loop_->RemoveFd(input_fd_.get());
      SendConnection(other_agent_.get(), input_fd_.get(), STDOUT_FILENO, input_);
      handed_over_ = true;
      return;
    }
    loop_->RemoveFd(other_agent_.get());
    other_agent_.reset();
    if (handed_over_) return loop_->Quit();  // the channel of ssh ends with this process
    Prepare(prepare);
  }

  void OnLaterAgent() {
    UniqueFd other = AcceptInSession(session_.get());
    if (!other.valid()) return;
    if (launcher_ < 0 && !is_ending_) return loop_->Quit();  // there is nothing to continue
    if (other_agent_.valid()) loop_->RemoveFd(other_agent_.get());
    other_agent_ = std::move(other);  // an earlier one ends
    if (send(other_agent_.get(), "+", 1, MSG_NOSIGNAL) != 1) return;
    (void)loop_->AddFd(other_agent_.get(), EPOLLIN, [this](uint32_t) {
      loop_->RemoveFd(other_agent_.get());
      std::optional<FrontConnection> connection = ReceiveConnection(other_agent_.get());
      if (connection && !is_stopping_) return Attach(*std::move(connection));
      other_agent_.reset();
    });
  }

  void Attach(FrontConnection connection) {
    if (!is_lost_) OnLost();
    absl::StatusOr<std::unique_ptr<PipeWriter>> writer =
        PipeWriter::Create(loop_.get(), std::move(connection.output), [this] { OnOutputTaken(); });
    if (!writer.ok() || !ReadFrom(std::move(connection.input)).ok()) return other_agent_.reset();
    writer_ = *std::move(writer);
    is_lost_ = false;
    give_up_at_.reset();
    heard_ = SteadyNow();
    HostReport report;
    report.mutable_attached();
    Send(report);
    writer_->Write(std::exchange(held_, ""));
    if (is_paused_) PauseStreams(EPOLLIN);
    input_ = std::move(connection.bytes);
    HandleInput();
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
    listener_.reset();  // its port is the launcher's now
    may_reconnect_ = start.may_reconnect() && !is_front_here_;
    SpawnRequest request;
    request.program = "/proc/self/exe";
    request.argv = {"ddprun"};
    request.argv.insert(request.argv.end(), start.arguments().begin(), start.arguments().end());
    request.environment = OwnEnvironment();
    request.dies_with_parent = !start.detach();
    const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    request.stdin_fd = null.get();
    const absl::Status status = start.detach() ? StartDetached(start.job(), &request) : StartAttached(&request);
    if (!status.ok()) Fail(status);
  }

  absl::Status Spawn(const SpawnRequest& request) {
    absl::StatusOr<Child> child = CreateChild(request);
    if (!child.ok()) return child.status();
    launcher_ = child->pid;
    gate_ = std::move(child->gate);
    gate_.Open();
    return children_->Watch(*std::move(child));
  }

  absl::Status StartAttached(SpawnRequest* request) {
    std::array<UniqueFd, 2> theirs;
    for (size_t i = 0; i < theirs.size(); ++i) {
      int ends[2];
      if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe2");
      streams_[i].reset(ends[0]);
      theirs[i].reset(ends[1]);
      if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return ErrnoStatus(errno, "fcntl");
      const absl::Status added = loop_->AddFd(ends[0], EPOLLIN, [this, i](uint32_t) { Forward(i); });
      if (!added.ok()) return added;
    }
    request->stdout_fd = theirs[0].get();
    request->stderr_fd = theirs[1].get();
    failure_.reset(memfd_create("failure", MFD_CLOEXEC));
    if (failure_.valid()) {
      request->passed_fds = {failure_.get()};
      request->environment.push_back(absl::StrCat(kFailureFdVariable, "=", failure_.get()));
    }
    return Spawn(*request);
  }

  absl::Status StartDetached(const std::string& job, SpawnRequest* request) {
    absl::StatusOr<std::string> folder = MakeJobFolder(job);
    if (!folder.ok()) return folder.status();
    // A shared home has the files of all hosts.
    const std::string path = absl::StrCat(*folder, "/", Hostname(), ".log");
    const UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!file.valid()) return ErrnoStatus(errno, path);
    HoldJobFile(file.get());
    request->stdout_fd = request->stderr_fd = file.get();
    if (absl::Status status = Spawn(*request); !status.ok()) return status;
    // Until its exec, which closes its end of the gate, the launcher may still be in this process's group, and would be
    // killed with it.
    return loop_->AddFd(gate_.fd(), EPOLLIN, [this, path](uint32_t) { OnDetached(path); });
  }

  void OnDetached(const std::string& output) {
    loop_->RemoveFd(gate_.fd());
    if (launcher_ < 0) return;  // it has ended
    if (const std::optional<int> error = gate_.TakeError()) return Fail(ExplainExecError("ddprun", *error));
    HostReport report;
    report.mutable_detached()->set_pid(launcher_);
    report.mutable_detached()->set_output(output);
    Send(report);
    is_detached_ = is_ending_ = true;
  }

  // False: nothing more comes, for now or ever.
  bool Forward(size_t stream) {
    char buffer[64 << 10];
    const ssize_t got = read(streams_[stream].get(), buffer, sizeof(buffer));
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {
      loop_->RemoveFd(streams_[stream].get());
      streams_[stream].reset();
      return false;
    }
    HostReport report;
    report.mutable_output()->set_is_stderr(stream == 1);
    report.mutable_output()->set_data(buffer, got);
    Send(report);
    if ((is_lost_ ? held_.size() : writer_->waiting_bytes()) > kMaxWaitingBytes) PauseStreams(0);
    return true;
  }

  void PauseStreams(uint32_t events) {
    is_paused_ = events == 0;
    for (const UniqueFd& stream : streams_) {
      if (stream.valid()) (void)loop_->ModifyFd(stream.get(), events);
    }
  }

  void OnOutputTaken() {
    if (is_paused_ && writer_->waiting_bytes() < kMaxWaitingBytes / 2) PauseStreams(EPOLLIN);
    if (is_ending_ && writer_->idle()) loop_->Quit();
  }

  void OnLauncherEnd(const ProcessEnd& end) {
    kill_at_.reset();
    for (size_t i = 0; i < streams_.size(); ++i) {
      while (streams_[i].valid() && Forward(i)) {
      }
    }
    HostReport report;
    report.mutable_ended()->set_code(end.ExitCode());
    if (failure_.valid() && lseek(failure_.get(), 0, SEEK_END) > 0 && lseek(failure_.get(), 0, SEEK_SET) == 0) {
      (void)report.mutable_ended()->mutable_failure()->ParseFromFileDescriptor(failure_.get());
    }
    End(report);
  }

  void Fail(const absl::Status& status) {
    HostReport report;
    report.mutable_failed()->set_reason(std::string(status.message()));
    End(report);
  }

  // The last report.
  void End(const HostReport& report) {
    launcher_ = -1;
    is_ending_ = true;
    if (is_lost_ && !give_up_at_) return loop_->Quit();
    last_.clear();
    AppendFrame(report, &last_);
    Send(report);
  }

  void Send(const HostReport& report) {
    std::string frame;
    AppendFrame(report, &frame);
    if (give_up_at_) {
      held_ += frame;
    } else {
      writer_->Write(std::move(frame));
    }
  }

  // If the front has ended, ssh ends our input, and sshd still reads our output; if the connection is lost, sshd closes
  // both, perhaps one after the other.
  void OnInputEnd() {
    if (!may_reconnect_ || !writer_->HasReader()) return OnLost();
    loop_->RemoveFd(input_fd_.get());
    input_ended_at_ = SteadyNow();
  }

  // The other side has gone.
  void OnLost() {
    if (is_lost_) return;
    is_lost_ = true;
    input_ended_at_.reset();
    loop_->RemoveFd(input_fd_.get());
    writer_->Close();
    if (!may_reconnect_) return Stop();
    give_up_at_ = SteadyNow() + kSilence;
    held_ = last_;
  }

  void Stop() {
    is_stopping_ = true;
    held_.clear();
    // The session remains this agent's until the launcher has ended.
    if (session_.valid()) loop_->RemoveFd(session_.get());
    PauseStreams(EPOLLIN);
    if (launcher_ < 0 || is_detached_) return loop_->Quit();
    children_->Signal(launcher_, SIGTERM);
    kill_at_ = SteadyNow() + kStopLimit;
  }

  const std::unique_ptr<EventLoop> loop_;
  const bool is_front_here_;
  std::unique_ptr<PipeWriter> writer_;
  std::unique_ptr<ChildWatch> children_;
  std::unique_ptr<BackgroundCall<bool>> tidying_;
  std::unique_ptr<Command> collecting_;
  std::unique_ptr<ReachListener> listener_;
  std::unique_ptr<BackgroundCall<std::vector<std::string>>> reaching_;
  std::array<UniqueFd, 2> streams_;  // the launcher's stdout and stderr
  UniqueFd input_fd_;
  std::string input_;
  UniqueFd session_;      // where a later agent of the job connects
  UniqueFd other_agent_;  // an earlier one that still has a launcher; or the later one whose connection we use
  std::string held_;      // frames for the next connection
  std::string last_;      // the frame with the last report
  UniqueFd failure_;      // a file in memory in which the launcher leaves a JobFailure
  pid_t launcher_ = -1;
  StartGate gate_;  // the launcher's
  SteadyTime heard_;
  std::optional<SteadyTime> kill_at_;
  std::optional<SteadyTime> input_ended_at_;  // while it is not known why
  std::optional<SteadyTime> give_up_at_;      // waits for another connection until then
  bool may_reconnect_ = false;
  bool handed_over_ = false;  // an earlier agent uses our connection
  bool is_stopping_ = false;
  bool is_lost_ = false;
  bool is_detached_ = false;
  bool is_paused_ = false;
  bool is_ending_ = false;  // quits once everything is written
};

}  // namespace

int RunHostAgent(bool is_front_here) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGHUP, SIG_IGN);  // the end of the connection, which the input tells too
  absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  if (!loop.ok()) {
    Log(LogLevel::kError, loop.status().message());
    return worker_contract::kExitFailed;
  }
  return HostAgent(*std::move(loop), is_front_here).Run();
}

}  // namespace ddprun::launcher
