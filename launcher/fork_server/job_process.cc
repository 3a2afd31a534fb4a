#include "launcher/fork_server/job_process.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {

JobProcess::JobProcess(pid_t pid, UniqueFd socket, EventLoop* loop, std::function<void()> on_swept)
    : pid_(pid), socket_(std::move(socket)), loop_(loop), on_swept_(std::move(on_swept)) {
  (void)loop_->AddFd(socket_.get(), EPOLLIN, [this](uint32_t) { OnReadable(); });
}

JobProcess::~JobProcess() {
  if (socket_.valid()) loop_->RemoveFd(socket_.get());
}

void JobProcess::Reap(pid_t worker) {
  const std::string message = absl::StrCat("reap", absl::string_view("\0", 1), worker);
  // If it can't be sent, the worker stays a zombie until the job ends.
  if (socket_.valid()) send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void JobProcess::Sweep() {
  constexpr absl::string_view kMessage = "sweep";
  sweeping_ = socket_.valid() && send(socket_.get(), kMessage.data(), kMessage.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
}

void JobProcess::OnReadable() {
  char message[64];
  const ssize_t got = recv(socket_.get(), message, sizeof message, MSG_DONTWAIT);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) {
    // It has died, and its workers with it.
    loop_->RemoveFd(socket_.get());
    socket_.reset();
  }
  if (std::exchange(sweeping_, false)) on_swept_();
}

}  // namespace ddprun::launcher
