#include "launcher/process/signal_source.h"

#include <sys/epoll.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/process.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/process/proc_files.h"

namespace ddprun::launcher {

std::string ReceivedSignal::Text() const {
  if (from_outside) return absl::StrCat(SignalName(number), " from outside this container");
  if (sender == 0) return absl::StrCat(SignalName(number), " from the terminal or the kernel");
  return absl::StrCat(SignalName(number), " from process ", sender,
                      sender_name.empty() ? "" : absl::StrCat(" (", sender_name, ")"));
}

absl::StatusOr<std::unique_ptr<SignalSource>> SignalSource::Create(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) {
    // Started with nohup: the job must outlive the terminal.
    struct sigaction action;
    if (signal == SIGHUP && sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) continue;
    if (signal == SIGKILL || signal == SIGSTOP || sigaddset(&set, signal) != 0) {
      return absl::InvalidArgumentError(absl::StrCat(SignalName(signal), " can't be caught"));
    }
  }
  const int error = pthread_sigmask(SIG_BLOCK, &set, nullptr);
  if (error != 0) return ErrnoStatus(error, "blocking signals");
  UniqueFd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus(errno, "signalfd");
  return std::unique_ptr<SignalSource>(new SignalSource(std::move(fd)));
}

SignalSource::~SignalSource() {
  if (loop_ != nullptr) loop_->RemoveFd(fd_.get());
}

absl::Status SignalSource::Attach(EventLoop* loop, std::function<void(const ReceivedSignal&)> callback) {
  callback_ = std::move(callback);
  const absl::Status added = loop->AddFd(fd_.get(), EPOLLIN, [this](uint32_t) { ReadOne(); });
  if (added.ok()) loop_ = loop;
  return added;
}

void SignalSource::ReadAll() {
  while (ReadOne()) {
  }
}

bool SignalSource::ReadOne() {
  // Reads one signal only, since the callback may quit the loop or destroy this object. The next iteration reads the
  // rest.
  signalfd_siginfo info;
  if (read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return false;
  ReceivedSignal signal;
  signal.number = static_cast<int>(info.ssi_signo);
  // SI_USER, SI_QUEUE and SI_TKILL are all at most 0; the kernel's own codes are above.
  if (info.ssi_code <= 0 || signal.number == SIGCHLD) {
    signal.sender = static_cast<pid_t>(info.ssi_pid);
    signal.sender_user = info.ssi_uid;
    signal.from_outside = signal.sender == 0;
  }
  if (signal.sender != 0 && signal.number != SIGCHLD) {
    signal.sender_name = ReadSmallFile(absl::StrCat("/proc/", signal.sender, "/comm"));
    absl::StripAsciiWhitespace(&signal.sender_name);
  }
  callback_(signal);
  return true;
}

}  // namespace ddprun::launcher
