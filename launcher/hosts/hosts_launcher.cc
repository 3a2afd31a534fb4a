#include "launcher/hosts/hosts_launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

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
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/random_id.h"
#include "base/text.h"
#include "base/version.h"
#include "base/write_all.h"
#include "launcher/hosts/cache_folder.h"
#include "launcher/hosts/host_link.h"
#include "launcher/hosts/hosts_machine.h"
#include "launcher/os/child_watch.h"
#include "launcher/os/companion_file.h"
#include "launcher/os/errno_status.h"
#include "launcher/os/event_loop.h"
#include "launcher/os/own_environment.h"
#include "launcher/os/signal_source.h"
#include "launcher/os/unique_fd.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {
namespace {

using worker_contract::kExitFailed;

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

class HostsLauncher {
 public:
  HostsLauncher(HostsPlan plan, std::vector<ProgramFile> files, std::string digest)
      : names_(plan.hosts),
        files_(std::move(files)),
        digest_(std::move(digest)),
        machine_(std::move(plan), SteadyNow()) {}
  ~HostsLauncher() {
    links_.clear();
    signals_.reset();
  }

  int Run() {
    if (absl::Status status = SetUp(); !status.ok()) {
      Log(LogLevel::kError, status.message());
      return kExitFailed;
    }
    loop_->Run();
    CloseLinks();
    return exit_code_;
  }

 private:
  absl::Status SetUp() {
    absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
    if (!loop.ok()) return loop.status();
    loop_ = *std::move(loop);
    absl::StatusOr<std::unique_ptr<SignalSource>> signals =
        SignalSource::Create({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2});
    if (!signals.ok()) return signals.status();
    signals_ = *std::move(signals);
    StartLogThread();
    absl::StatusOr<std::unique_ptr<ChildWatch>> children =
        ChildWatch::Create(loop_.get(), [this](const std::vector<ProcessEnd>& ends) {
          for (const ProcessEnd& end : ends) OnExit(end);
        });
    if (!children.ok()) return children.status();
    children_ = *std::move(children);
    absl::Status status = signals_->Attach(loop_.get(), [this](const ReceivedSignal& signal) {
      Step([&](HostsEffects* effects) { machine_.OnSignal(signal.number, SteadyNow(), effects); });
    });
    if (!status.ok()) return status;
    loop_->SetTimer(
        [this] { return machine_.NextDeadline(); },
        [this](SteadyTime now) { Step([&](HostsEffects* effects) { machine_.OnDeadline(now, effects); }); });
    for (size_t i = 0; i < names_.size(); ++i) {
      links_.push_back(nullptr);
      if (status = Connect(i); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Connect(size_t i) {
    absl::StatusOr<std::unique_ptr<HostLink>> link =
        HostLink::Open(loop_.get(), children_.get(), names_[i].name, digest_, files_, CallbacksOf(i));
    if (!link.ok()) return link.status();
    links_[i] = *std::move(link);
    return absl::OkStatus();
  }

  HostLink::Callbacks CallbacksOf(size_t i) {
    HostLink::Callbacks callbacks;
    callbacks.on_connected = [this, i] {
      Step([&](HostsEffects* effects) { machine_.OnConnected(i, SteadyNow(), effects); });
    };
    callbacks.on_sign_of_life = [this, i] { machine_.OnSignOfLife(i, SteadyNow()); };
    callbacks.on_report = [this, i](const hosts::v1::HostReport& report) {
      Step([&](HostsEffects* effects) { machine_.OnReport(i, report, SteadyNow(), absl::Now(), effects); });
    };
    callbacks.on_stderr = [this, i](const std::string& text) {
      hosts::v1::HostReport report;
      report.mutable_output()->set_is_stderr(true);
      report.mutable_output()->set_data(text);
      Step([&](HostsEffects* effects) { machine_.OnReport(i, report, SteadyNow(), absl::Now(), effects); });
    };
    callbacks.on_end = [this, i](const std::string& reason) {
      Step([&](HostsEffects* effects) { machine_.OnLost(i, reason, SteadyNow(), effects); });
    };
    return callbacks;
  }

  void OnExit(const ProcessEnd& end) {
    for (const std::unique_ptr<HostLink>& link : links_) {
      if (link->pid() == end.pid) link->OnExit(end);
    }
    if (is_closing_ && children_->empty()) loop_->Quit();
  }

  template <typename Call>
  void Step(Call call) {
    if (exited_) return;
    HostsEffects effects;
    call(&effects);
    for (const HostsEffect& effect : effects) {
      if (exited_) return;
      std::visit([this](const auto& e) { Do(e); }, effect);
    }
  }

  void Do(const hosts_effect::Send& send) { links_[send.host]->Send(send.command); }
  void Do(const hosts_effect::Print& print) { Log(print.level, print.text); }
  void Do(const hosts_effect::Show& show) {
    if (show.is_stderr) {
      LogVerbatim(show.text);
    } else {
      // May block, as a worker's own output would: what the hosts send then waits there.
      WriteAll(STDOUT_FILENO, show.text);
    }
  }
  void Do(const hosts_effect::Connect& connect) {
    children_->SignalGroup(links_[connect.host]->pid(), SIGKILL);  // it may hang
    const absl::Status status = Connect(connect.host);
    if (status.ok()) return;
    loop_->Post([this, host = connect.host, reason = std::string(status.message())] {
      Step([&](HostsEffects* effects) { machine_.OnLost(host, reason, SteadyNow(), effects); });
    });
  }
  void Do(const hosts_effect::Exit& exit) {
    exited_ = true;
    exit_code_ = exit.code;
    loop_->Quit();
  }

  // Lets the agents end, and so ssh; what does not end soon is killed.
  void CloseLinks() {
    exited_ = is_closing_ = true;
    for (const std::unique_ptr<HostLink>& link : links_) link->Close();
    if (children_ == nullptr || children_->empty()) return;
    const SteadyTime deadline = SteadyNow() + absl::Seconds(5);
    bool killed = false;
    loop_->SetTimer([&] { return killed ? SteadyTime::InfiniteFuture() : deadline; },
                    [&](SteadyTime) {
                      killed = true;
                      for (const pid_t pid : children_->pids()) children_->SignalGroup(pid, SIGKILL);
                    });
    loop_->Run();
  }

  const std::vector<HostSpec> names_;
  const std::vector<ProgramFile> files_;
  const std::string digest_;
  HostsMachine machine_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<SignalSource> signals_;
  std::unique_ptr<ChildWatch> children_;
  std::vector<std::unique_ptr<HostLink>> links_;
  bool exited_ = false;
  bool is_closing_ = false;
  int exit_code_ = kExitFailed;
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
    std::ifstream in(file.path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    if (bytes.empty()) return absl::InternalError(absl::StrCat("can't read ", file.path, ", which is to be copied"));
    file.bytes = static_cast<int64_t>(bytes.size());
    absl::StrAppend(&all, file.name, " ", std::hash<std::string>()(bytes), "\n");
  }
  *digest = absl::StrFormat("%s-%016x", kVersion, std::hash<std::string>()(all));
  return files;
}

// Returns the file.
absl::StatusOr<std::string> KeepToken(const HostsPlan& plan) {
  RemoveOldCacheFiles(CacheFolder(), absl::Now());
  absl::StatusOr<std::string> path = MakeJobFolder(plan.job_id);
  if (!path.ok()) return path;
  absl::StrAppend(&*path, "/token");
  const UniqueFd file(open(path->c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const int error = file.valid() ? WriteAll(file.get(), absl::StrCat(plan.token, "\n")) : errno;
  if (error != 0) return ErrnoStatus(error, *path);
  return path;
}

}  // namespace

absl::StatusOr<HostsInput> ReadHostsInput(const Options& options, const std::string& python) {
  absl::StatusOr<std::vector<HostSpec>> hosts = HostsOf(options);
  if (!hosts.ok()) return hosts.status();
  return HostsInput{*std::move(hosts),     WorkingFolder(), OwnEnvironment(), python,
                    absl::LocalTimeZone(), RandomId(),      RandomId(),       RandomId()};
}

int RunOnHosts(HostsPlan plan) {
  // A stopped process would not tell the hosts that it is alive, and they would end the job.
  signal(SIGTSTP, SIG_IGN);
  if (plan.detach && !plan.token.empty()) {
    absl::StatusOr<std::string> file = KeepToken(plan);
    if (!file.ok()) {
      Log(LogLevel::kError, file.status().message());
      return kExitFailed;
    }
    plan.token_file = *std::move(file);
  }
  std::string digest;
  absl::StatusOr<std::vector<ProgramFile>> files = FilesOfProgram(&digest);
  if (!files.ok()) {
    Log(LogLevel::kError, files.status().message());
    return kExitFailed;
  }
  return HostsLauncher(std::move(plan), *std::move(files), std::move(digest)).Run();
}

}  // namespace ddprun::launcher
