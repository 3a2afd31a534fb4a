#include "launcher/process/stack_probe.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "launcher/process/proc_files.h"
#include "launcher/process/resolve_program.h"
#include "launcher/process/spawn_process.h"
#include "worker_contract/crash_report.h"

namespace ddprun::launcher {
namespace {

// Limit for the process, where each of two stacks takes kMaxReportSeconds at most, and for a tool: gdb reads symbols
// first.
constexpr absl::Duration kPatience = absl::Seconds(5);
constexpr absl::Duration kShortPatience = absl::Seconds(2);  // without tools

bool Catches(const std::string& status, int signal) {
  uint64_t mask = 0;
  return absl::SimpleHexAtoi(StatusField(status, "SigCgt"), &mask) && ((mask >> (signal - 1)) & 1) != 0;
}

// True if stopped by SIGSTOP or a debugger, so that no signal is handled.
bool IsStopped(const std::string& status) { return absl::StartsWithIgnoreCase(StatusField(status, "State"), "T"); }

// System call in which the main thread is blocked; unset: it is not, or this is unknown.
std::optional<int64_t> BlockedIn(pid_t pid) {
  const std::string call = ReadSmallFile(absl::StrCat("/proc/", pid, "/syscall"));
  int64_t number;
  if (!absl::SimpleAtoi(call.substr(0, call.find_first_of(" \n")), &number)) return std::nullopt;
  return number;
}

// True if a handled signal makes the call return with only a part of the bytes written, which a program may not expect.
// Other calls are restarted, or fail with EINTR, for which Python and PyTorch try again.
bool EndsEarlyBySignal(int64_t call) {
  switch (call) {
    case SYS_write:
    case SYS_pwrite64:
    case SYS_writev:
    case SYS_pwritev:
    case SYS_pwritev2:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_sendmmsg:
    case SYS_sendfile:
    case SYS_splice:
    case SYS_vmsplice:
    case SYS_copy_file_range: return true;
    default: return false;
  }
}

}  // namespace

std::string DescribeMainThread(pid_t pid) {
  const std::string state = StatusField(StatusOf(pid), "State");
  if (state.empty()) return "";
  std::string text = absl::StrCat("main thread: ", state);
  const std::string where = ReadSmallFile(absl::StrCat("/proc/", pid, "/wchan"));
  if (!where.empty() && where != "0") absl::StrAppend(&text, "; wchan ", where);
  if (const auto call = BlockedIn(pid)) absl::StrAppend(&text, "; system call ", *call);
  return text;
}

StackProbe::StackProbe(EventLoop* loop, pid_t pid, std::function<void(const std::string& text)> on_done,
                       Sources sources)
    : loop_(loop), pid_(pid), on_done_(std::move(on_done)), sources_(sources), state_(DescribeMainThread(pid)) {
  const std::string id = absl::StrCat(pid);
  if (sources_ == Sources::kAlsoTools) {
    tools_ = {{"gdb", "-p", id, "-batch", "-ex", "thread apply all bt"},
              {"eu-stack", "-p", id},
              {"py-spy", "dump", "-p", id}};
  }
  timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  const bool timed = timer_.valid() && loop_->AddFd(timer_.get(), EPOLLIN, [this](uint32_t) { OnTimer(); }).ok();
  if (timed && RequestStacks()) return;
  // RunNextTool and Finish may call on_done, which must not happen in the constructor.
  loop_->Post([this, timed, alive = alive_] {
    if (!*alive) return;
    if (timed) {
      RunNextTool();
    } else {
      Finish();
    }
  });
}

StackProbe::~StackProbe() {
  *alive_ = false;
  StopReading();
  if (timer_.valid()) loop_->RemoveFd(timer_.get());
}

bool StackProbe::RequestStacks() {
  const std::string status = StatusOf(pid_);
  if (IsStopped(status) || !Catches(status, worker_contract::kStackSignal)) return false;
  if (const auto call = BlockedIn(pid_); call && EndsEarlyBySignal(*call)) return false;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
  reading_.reset(ends[0]);
  writing_.reset(ends[1]);
  siginfo_t info{};
  info.si_code = SI_QUEUE;
  info.si_pid = getpid();
  info.si_uid = getuid();
  info.si_value.sival_int = writing_.get();
  // To the main thread, which runs the training loop.
  if (syscall(SYS_rt_tgsigqueueinfo, pid_, pid_, worker_contract::kStackSignal, &info) != 0 ||
      !loop_->AddFd(reading_.get(), EPOLLIN, [this](uint32_t) { OnReadable(); }).ok()) {
    StopReading();
    return false;
  }
  SetTimer();
  return true;
}

void StackProbe::OnReadable() {
  // The process has its own descriptor of the pipe by now: end-of-file comes when it closes that.
  writing_.reset();
  char buffer[4096];
  const ssize_t got = read(reading_.get(), buffer, sizeof buffer);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0) text_.append(buffer, got);
  if (got > 0 && text_.size() < kMaxBytes) return;
  StopReading();
  Finish();
}

void StackProbe::OnTimer() {
  StopReading();
  tool_.reset();
  if (text_.empty()) {
    RunNextTool();
  } else {
    Finish();
  }
}

void StackProbe::RunNextTool() {
  while (!tools_.empty()) {
    const std::vector<std::string> argv = std::move(tools_.back());
    tools_.pop_back();
    absl::StatusOr<std::string> program = ResolveProgram(argv[0], SearchPath());
    if (!program.ok()) continue;
    SpawnRequest request;
    request.program = *std::move(program);
    request.argv = argv;
    request.environment = OwnEnvironment();
    absl::StatusOr<std::unique_ptr<Command>> tool =
        Command::Run(loop_, request, kPatience, [this](const std::string& answer) {
          text_ = answer;
          // The command must not be destroyed from within its callback.
          loop_->Post([this, alive = alive_] {
            if (*alive) OnTimer();
          });
        });
    if (!tool.ok()) continue;
    tool_ = *std::move(tool);
    return SetTimer();
  }
  Finish();
}

void StackProbe::SetTimer() {
  const itimerspec once{{}, absl::ToTimespec(sources_ == Sources::kAlsoTools ? kPatience : kShortPatience)};
  timerfd_settime(timer_.get(), 0, &once, nullptr);
}

void StackProbe::StopReading() {
  if (reading_.valid()) loop_->RemoveFd(reading_.get());
  reading_.reset();
  writing_.reset();
}

void StackProbe::Finish() {
  if (std::exchange(done_, true)) return;
  const itimerspec never{};
  if (timer_.valid()) timerfd_settime(timer_.get(), 0, &never, nullptr);
  std::string text = state_.empty() ? "" : absl::StrCat(state_, "\n");
  absl::StrAppend(&text, absl::string_view(text_).substr(0, kMaxBytes));
  if (!absl::EndsWith(text, "\n")) text.push_back('\n');
  on_done_(text);
}

}  // namespace ddprun::launcher
