#include "launcher/process/run_command.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "base/status_macros.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/process/proc_files.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxAnswer = 64 * 1024;

}  // namespace

absl::StatusOr<std::unique_ptr<Command>> Command::Run(EventLoop* loop, const SpawnRequest& program,
                                                      absl::Duration limit,
                                                      std::function<void(const std::string&)> on_answer) {
  std::unique_ptr<Command> command(new Command(loop, std::move(on_answer)));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe2");
  command->output_.reset(ends[0]);
  const UniqueFd theirs(ends[1]);
  // Only our end is non-blocking: most programs fail if their output is.
  if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return ErrnoStatus(errno, "fcntl");
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  command->timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  const itimerspec once{{}, absl::ToTimespec(limit)};
  if (timerfd_settime(command->timer_.get(), 0, &once, nullptr) != 0) return ErrnoStatus(errno, "timerfd");

  SpawnRequest request = program;
  request.stdin_fd = request.stderr_fd = null.get();
  request.stdout_fd = theirs.get();
  DDPRUN_ASSIGN_OR_RETURN(Child child, CreateChild(request));
  child.gate.Open();
  command->process_ = std::move(child.pidfd);
  Command* const q = command.get();
  DDPRUN_RETURN_IF_ERROR(loop->AddFd(q->output_.get(), EPOLLIN, [q](uint32_t) { q->OnReadable(); }));
  DDPRUN_RETURN_IF_ERROR(loop->AddFd(q->timer_.get(), EPOLLIN, [q](uint32_t) { q->End(); }));
  return command;
}

void Command::OnReadable() {
  char buffer[4096];
  const ssize_t got = read(output_.get(), buffer, sizeof(buffer));
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0) {
    text_.append(buffer, got);
    if (text_.size() > kMaxAnswer) End();
    return;
  }
  End();
  on_answer_(text_);
}

void Command::End() {
  if (!process_.valid()) return;
  SignalPidfd(process_.get(), SIGKILL);
  loop_->RemoveFd(output_.get());
  loop_->RemoveFd(timer_.get());
  output_.reset();
  timer_.reset();
  process_.reset();
}

}  // namespace ddprun::launcher
