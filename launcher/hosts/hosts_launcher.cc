#include "launcher/hosts/hosts_launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "base/socket_address.h"
#include "base/status_macros.h"
#include "base/stream_writer.h"
#include "base/text.h"
#include "base/version.h"
#include "launcher/hosts/host_agent.h"
#include "launcher/hosts/hosts_machine.h"
#include "launcher/hosts/remote_start.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/io/log_pump.h"
#include "launcher/process/child_watch.h"
#include "launcher/process/proc_files.h"
#include "launcher/process/resolve_program.h"
#include "launcher/process/signal_source.h"
#include "launcher/process/spawn_process.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {
namespace {

using worker_contract::kExitFailed;

constexpr size_t kMaxWaitingBytes = 1 << 20;  // output to show, before the hosts hold theirs back
constexpr size_t kMaxLineBytes = 64 << 10;
constexpr size_t kPieceBytes = 64 << 10;    // piece of a copied file, by which progress is seen
constexpr size_t kMaxLoginBytes = 1 << 20;  // line of a login shell
constexpr absl::Duration kCloseLimit = absl::Seconds(5);
constexpr absl::Duration kLastLinesLimit = absl::Seconds(1);

absl::StatusOr<std::vector<HostSpec>> HostsOf(const Options& options) {
  if (options.hosts_file.empty()) return options.hosts;
  if (std::error_code error; std::filesystem::is_directory(options.hosts_file, error)) {
    return absl::InvalidArgumentError(absl::StrCat("--hosts: ", Quoted(options.hosts_file), " is a folder"));
  }
  std::ifstream file(options.hosts_file);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--hosts: can't read ", Quoted(options.hosts_file), ": ", strerror(errno)));
  }
  absl::StatusOr<std::vector<HostSpec>> hosts = ParseHostFile(text);
  if (hosts.ok()) return hosts;
  return absl::InvalidArgumentError(absl::StrCat("--hosts: ", options.hosts_file, ": ", hosts.status().message()));
}

// $PWD where it is the working folder: other hosts may know it only by this name (an automounter's).
std::string WorkingFolder() {
  char physical[PATH_MAX];
  if (getcwd(physical, sizeof(physical)) == nullptr) return "/";
  const char* const logical = getenv("PWD");
  struct stat a, b;
  if (logical != nullptr && logical[0] == '/' && stat(logical, &a) == 0 && stat(physical, &b) == 0 &&
      a.st_dev == b.st_dev && a.st_ino == b.st_ino) {
    return logical;
  }
  return physical;
}

// True if a name means this host, without a question to a name server.
bool IsThisHost(const std::string& host) {
  const std::string name = Hostname();
  return IsLoopbackHost(host) || host == name || host == name.substr(0, name.find('.'));
}

// "Linux x86_64".
std::string ThisSystem() {
  utsname name;
  return uname(&name) == 0 ? absl::StrCat(name.sysname, " ", name.machine) : "";
}

// The connection to the agent of a host: the user's own ssh, or for this host a child process.
struct Link {
  explicit Link(EventLoop* its_loop) : loop(its_loop) {}
  ~Link() {
    if (socket.valid()) loop->RemoveFd(socket.get());
    shutdown(socket.get(), SHUT_RDWR);
    // A thread that still writes keeps the descriptor.
    if (writer != nullptr && !writer->Flush(SteadyNow())) (void)socket.release();
  }

  EventLoop* const loop;
  pid_t pid = -1;                        // -1: it has ended
  UniqueFd socket;                       // its standard input and output
  UniqueFd errors;                       // its standard error, a file in memory
  std::unique_ptr<StreamWriter> writer;  // to `socket`
  size_t waiting_bytes = 0;              // bytes of `writer`, when it was looked at
  StartStage stage = StartStage::kConnecting;
  bool executed() const { return stage >= StartStage::kExecuting; }  // frames follow
  std::string bytes;                                                 // read but not used
  std::string failure;                                               // why we have ended the process
};

class HostsLauncher : private HostsShell {
 public:
  HostsLauncher(HostsPlan plan, std::vector<ProgramFile> files, std::string digest)
      : hosts_(plan.hosts),
        files_(std::move(files)),
        digest_(std::move(digest)),
        machine_(std::move(plan), this, SteadyNow()) {}

  // `front`: a pidfd of the process that the user has started.
  absl::StatusOr<int> Run(std::unique_ptr<SignalSource> signals, UniqueFd front) {
    DDPRUN_ASSIGN_OR_RETURN(loop_, EventLoop::Create());
    front_ = std::move(front);
    signals_ = std::move(signals);
    const absl::Status status = SetUp();
    if (status.ok()) loop_->Run();
    LogVerbatim(summary_);
    CloseLinks();
    links_.clear();
    signals_.reset();
    if (!status.ok()) return status;
    return exit_code_;
  }

 private:
  absl::Status SetUp() {
    StartLogThread();
    DDPRUN_ASSIGN_OR_RETURN(children_, ChildWatch::Create(loop_.get(), [this](const std::vector<ProcessEnd>& ends) {
                              for (const ProcessEnd& end : ends) OnExit(end);
                            }));
    for (const bool is_stderr : {false, true}) {
      // The writer's thread may outlive it, so the descriptor stays open.
      const int drained = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
      if (drained < 0) return ErrnoStatus(errno, "eventfd");
      outputs_[is_stderr].writer = std::make_unique<StreamWriter>(
          StreamWriter::Options{.fd = STDOUT_FILENO + is_stderr, .max_bytes = SIZE_MAX, .drained_event = drained});
      DDPRUN_RETURN_IF_ERROR(loop_->AddFd(drained, EPOLLIN, [this, is_stderr, drained](uint32_t) {
        eventfd_t count;
        eventfd_read(drained, &count);
        OnDrained(is_stderr);
      }));
    }
    // If that process is killed, this one says goodbye.
    DDPRUN_RETURN_IF_ERROR(loop_->AddFd(front_.get(), EPOLLIN, [this](uint32_t) { loop_->Quit(); }));
    DDPRUN_RETURN_IF_ERROR(signals_->Attach(loop_.get(), [this](const ReceivedSignal& signal) {
      if (!exited_) machine_.OnSignal(signal.number);
      if (exited_) loop_->Quit();  // without the output that is not read
    }));
    timer_ = loop_->AddTimer([this] { return exited_ ? SteadyTime::InfiniteFuture() : machine_.NextDeadline(); },
                             [this](SteadyTime now) { OnTimer(now); });
    for (const HostSpec& host : hosts_) {
      links_.push_back(std::make_unique<Link>(loop_.get()));
      lines_.push_back({Prefixer(host), Prefixer(host)});
    }
    machine_.Start();
    return absl::OkStatus();
  }

  static LinePrefixer Prefixer(const HostSpec& host) {
    return LinePrefixer(absl::StrCat("[", host.name, "] "), kMaxLineBytes);
  }

  void OnTimer(SteadyTime now) {
    for (size_t i = 0; i < links_.size(); ++i) {
      Link& link = *links_[i];
      if (link.executed() || link.writer == nullptr) continue;
      const size_t waiting = link.writer->waiting_bytes();
      if (std::exchange(link.waiting_bytes, waiting) != waiting) machine_.OnCopying(i, now);
    }
    machine_.OnDeadline(now);
  }

  bool AllIsShown() {
    return std::all_of(outputs_.begin(), outputs_.end(), [](Output& o) { return o.writer->waiting_bytes() == 0; });
  }

  void OnDrained(bool is_stderr) {
    if (is_closing_) return;
    if (exited_ && AllIsShown()) return loop_->Quit();
    if (exited_ || outputs_[is_stderr].writer->waiting_bytes() > 0) return;
    if (std::exchange(outputs_[is_stderr].is_held, false)) machine_.OnOutputBlocked(is_stderr, false);
  }

  absl::Status Open(size_t i) {
    children_->SignalGroup(links_[i]->pid, SIGKILL);  // it may hang
    links_[i] = std::make_unique<Link>(loop_.get());
    Link* const link = links_[i].get();
    SpawnRequest request;
    if (IsThisHost(hosts_[i].name)) {
      request.program = "/proc/self/exe";
      request.argv = {"ddprun", kAgentArgument};
      link->stage = StartStage::kExecuting;
    } else {
      const absl::StatusOr<std::string> ssh = ResolveProgram("ssh", SearchPath());
      if (!ssh.ok()) return absl::NotFoundError("there is no ssh on this host, by which --hosts starts the others");
      request.program = *ssh;
      request.argv = SshArguments(hosts_[i].name, digest_, files_);
    }
    request.environment = OwnEnvironment();
    request.dies_with_parent = false;  // it ends with its input
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return ErrnoStatus(errno, "socketpair");
    link->socket.reset(ends[0]);
    const UniqueFd theirs(ends[1]);
    link->errors.reset(memfd_create("errors", MFD_CLOEXEC));
    fcntl(link->errors.get(), F_SETFL, O_APPEND);
    request.stdin_fd = request.stdout_fd = theirs.get();
    request.stderr_fd = link->errors.get();
    link->writer =
        std::make_unique<StreamWriter>(StreamWriter::Options{.fd = link->socket.get(), .max_bytes = SIZE_MAX});
    DDPRUN_RETURN_IF_ERROR(loop_->AddFd(link->socket.get(), EPOLLIN, [this, i](uint32_t) { (void)Read(i); }));
    DDPRUN_ASSIGN_OR_RETURN(Child child, CreateChild(request));
    link->pid = child.pid;
    child.gate.Open();
    if (link->executed()) loop_->Post([this, i] { machine_.OnConnected(i, SteadyNow()); });
    return children_->Watch(std::move(child));
  }

  // False: nothing more is there, for now or ever.
  bool Read(size_t i) {
    Link* const link = links_[i].get();
    char buffer[64 << 10];
    const ssize_t got = recv(link->socket.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got == 0) loop_->RemoveFd(link->socket.get());
    if (got <= 0) return false;
    if (exited_ || !link->failure.empty()) return true;
    link->bytes.append(buffer, got);
    for (size_t end; !link->executed() && (end = link->bytes.find('\n')) != std::string::npos;) {
      const std::string line = link->bytes.substr(0, end);
      link->bytes.erase(0, end + 1);
      OnLine(i, absl::StrSplit(absl::StripTrailingAsciiWhitespace(line), absl::MaxSplits(' ', 2)));
    }
    if (!link->executed() && link->bytes.size() > kMaxLoginBytes) link->bytes.clear();
    bool error = false;
    hosts::v1::HostReport report;
    while (link->executed() && !exited_ && TakeFrame(&link->bytes, &report, &error)) {
      const bool is_first = std::exchange(link->stage, StartStage::kRunning) != StartStage::kRunning;
      if (is_first && ftruncate(link->errors.get(), 0) != 0) return false;  // errors of the login shell
      machine_.OnReport(i, report, SteadyNow(), absl::Now());
    }
    if (error) Fail(link, "its answer is not ddprun's: does its login shell write to standard output?");
    return true;
  }

  // See SshArguments.
  void OnLine(size_t i, const std::vector<std::string>& words) {
    Link* const link = links_[i].get();
    if (words.size() < 2 || words[0] != "DDPRUN") return;
    if (words[1] == "on" && words.size() == 3) {
      link->stage = StartStage::kCopying;
      if (words[2] == ThisSystem()) return;
      Fail(link, absl::StrCat("it has ", words[2], ", this host ", ThisSystem(),
                              ": start the job from a host of the same architecture"));
    } else if (words[1] == "send" && words.size() == 3) {
      for (const ProgramFile& file : files_) {
        const std::string bytes = file.name == words[2] ? ReadSmallFile(file.path) : "";
        for (size_t at = 0; at < bytes.size(); at += kPieceBytes) link->writer->Write(bytes.substr(at, kPieceBytes));
      }
    } else if (words[1] == "run") {
      link->stage = StartStage::kExecuting;
      machine_.OnConnected(i, SteadyNow());
    }
  }

  void Fail(Link* link, const std::string& reason) {
    link->failure = reason;
    children_->SignalGroup(link->pid, SIGKILL);
  }

  void OnExit(const ProcessEnd& end) {
    for (size_t i = 0; i < links_.size(); ++i) {
      Link* const link = links_[i].get();
      if (link->pid != end.pid) continue;
      // Others may still hold the socket (the master of a shared connection), so its end is not waited for.
      while (Read(i)) {
      }
      link->pid = -1;
      loop_->RemoveFd(link->socket.get());
      if (exited_) continue;
      const std::string errors = ReadSmallFile(absl::StrCat("/proc/self/fd/", link->errors.get()));
      machine_.OnLost(
          i, link->failure.empty() ? ExplainSshEnd(link->stage, end.ExitCode(), errors, hosts_[i].name) : link->failure,
          SteadyNow());
    }
    if (is_closing_ && children_->empty()) loop_->Quit();
  }

  void Connect(size_t i) override {
    const absl::Status status = Open(i);
    if (status.ok()) return;
    loop_->Post([this, i, text = std::string(status.message())] { machine_.OnLost(i, text, SteadyNow()); });
  }
  void Send(size_t i, const hosts::v1::HostCommand& command) override {
    std::string frame;
    AppendFrame(command, &frame);
    if (links_[i]->writer != nullptr) links_[i]->writer->Write(frame);
  }
  void Print(LogLevel level, const std::string& text) override { Log(level, text); }
  void Show(bool is_stderr, const std::string& text) override {
    is_stderr ? LogVerbatim(text) : outputs_[false].writer->Write(text);
  }
  void ShowOutput(size_t i, bool is_stderr, std::optional<std::string> data) override {
    std::string text;
    if (data) {
      lines_[i][is_stderr].Feed(*data, &text);
    } else {
      lines_[i][is_stderr].Finish(&text);
    }
    Output& output = outputs_[is_stderr];
    output.writer->Write(text);
    if (output.is_held || output.writer->waiting_bytes() <= kMaxWaitingBytes) return;
    output.is_held = true;
    loop_->Post([this, is_stderr] {
      if (!exited_) machine_.OnOutputBlocked(is_stderr, outputs_[is_stderr].is_held);
    });
  }
  void Exit(int code, const std::string& summary) override {
    exit_code_ = code;
    summary_ = summary;
    exited_ = true;
    if (AllIsShown()) loop_->Quit();
  }

  // Lets the agents end, and so ssh; what does not end soon is killed.
  void CloseLinks() {
    exited_ = is_closing_ = true;
    loop_->RemoveFd(front_.get());
    hosts::v1::HostCommand goodbye;
    goodbye.mutable_goodbye();
    for (size_t i = 0; i < links_.size(); ++i) {
      if (links_[i]->executed()) {
        Send(i, goodbye);
      } else {
        shutdown(links_[i]->socket.get(), SHUT_WR);
      }
    }
    if (children_ == nullptr || children_->empty()) return;
    SteadyTime deadline = SteadyNow() + kCloseLimit;
    timer_ = nullptr;
    const auto timer = loop_->AddTimer([&] { return deadline; },
                                       [&](SteadyTime) {
                                         deadline = SteadyTime::InfiniteFuture();
                                         for (const pid_t pid : children_->pids()) children_->SignalGroup(pid, SIGKILL);
                                       });
    loop_->Run();
  }

  const std::vector<HostSpec> hosts_;
  const std::vector<ProgramFile> files_;
  const std::string digest_;
  HostsMachine machine_;
  UniqueFd front_;
  std::unique_ptr<EventLoop> loop_;
  std::shared_ptr<const EventLoop::Timer> timer_;
  std::unique_ptr<SignalSource> signals_;
  std::unique_ptr<ChildWatch> children_;
  struct Output {
    std::unique_ptr<StreamWriter> writer;
    bool is_held = false;  // on the hosts, because the writer is blocked
  };
  std::array<Output, 2> outputs_;  // standard output and error
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<std::array<LinePrefixer, 2>> lines_;  // stdout and stderr of each host
  bool exited_ = false;
  bool is_closing_ = false;
  int exit_code_ = kExitFailed;
  std::string summary_;
};

// This program and the libraries beside it, and a name for their contents.
absl::StatusOr<std::vector<ProgramFile>> FilesOfProgram(std::string* digest) {
  std::vector<ProgramFile> files;
  for (const char* name : {"libddprun_crash.so", "libddprun_ports.so"}) {
    if (const absl::StatusOr<std::string> path = CompanionFile(name); path.ok()) files.push_back({name, *path});
  }
  files.push_back({"ddprun", "/proc/self/exe"});
  std::string all;
  for (ProgramFile& file : files) {
    const std::string bytes = ReadSmallFile(file.path);
    if (bytes.empty()) return absl::InternalError(absl::StrCat("can't read ", file.path, ", which is to be copied"));
    file.bytes = static_cast<int64_t>(bytes.size());
    absl::StrAppend(&all, file.name, " ", std::hash<std::string>()(bytes), "\n");
  }
  *digest = absl::StrFormat("%s-%016x", kVersion, std::hash<std::string>()(all));
  return files;
}

// Returns the file, which has a name of its own, so that another job with this id can't take it away.
absl::StatusOr<std::string> KeepToken(const HostsPlan& plan) {
  const std::string folder = JobFolder(plan.job_folder);
  DDPRUN_RETURN_IF_ERROR(MakeFolder(folder));
  std::string path = absl::StrCat(folder, "/token-", plan.prepare.token());
  DDPRUN_RETURN_IF_ERROR(WriteNewFile(path, absl::StrCat(plan.token, "\n"), 0600));
  return path;
}

absl::StatusOr<int> Run(HostsPlan plan, std::unique_ptr<SignalSource> signals, UniqueFd front) {
  if (plan.detach && !plan.token.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(plan.token_file, KeepToken(plan));
  }
  std::string digest;
  DDPRUN_ASSIGN_OR_RETURN(std::vector<ProgramFile> files, FilesOfProgram(&digest));
  return HostsLauncher(std::move(plan), std::move(files), std::move(digest)).Run(std::move(signals), std::move(front));
}

// Passes signals on to `child` until it ends; returns its exit code.
int Accompany(pid_t child, const sigset_t& signals) {
  int status;
  while (waitpid(child, &status, WNOHANG) != child) {
    const int number = sigwaitinfo(&signals, nullptr);
    if (number > 0 && number != SIGCHLD) kill(child, number);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : worker_contract::ExitCodeOfSignal(WTERMSIG(status));
}

}  // namespace

absl::StatusOr<HostsInput> ReadHostsInput(const Options& options, const std::string& python) {
  DDPRUN_ASSIGN_OR_RETURN(std::vector<HostSpec> hosts, HostsOf(options));
  return HostsInput{std::move(hosts),      WorkingFolder(), OwnEnvironment(), python,
                    absl::LocalTimeZone(), RandomId(),      RandomId(),       RandomId()};
}

// The process that the user sees is not the one that is connected to the hosts: if it is killed, the other one still
// says goodbye to them. Without that, they could not tell this from a lost connection.
int RunOnHosts(HostsPlan plan) {
  // A stopped process would not tell the hosts that it is alive, and they would end the job.
  signal(SIGTSTP, SIG_IGN);
  const std::vector<int> numbers = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
  absl::StatusOr<std::unique_ptr<SignalSource>> signals = SignalSource::Create(numbers);
  sigset_t set;
  sigemptyset(&set);
  for (const int number : numbers) sigaddset(&set, number);
  sigaddset(&set, SIGCHLD);
  UniqueFd front = OpenPidfd(getpid());
  sigprocmask(SIG_BLOCK, &set, nullptr);
  const pid_t child = signals.ok() && front.valid() ? fork() : -1;
  if (child > 0) return Accompany(child, set);
  absl::StatusOr<int> code = signals.ok() ? ErrnoStatus(errno, "fork") : signals.status();
  if (child == 0) {
    setsid();  // signals of the terminal come through the parent only
    code = Run(std::move(plan), *std::move(signals), std::move(front));
  }
  if (!code.ok()) Log(LogLevel::kError, code.status().message());
  if (child < 0) return kExitFailed;
  FlushLog(SteadyNow() + kLastLinesLimit);
  _exit(code.value_or(kExitFailed));  // the objects of main belong to the parent
}

}  // namespace ddprun::launcher
