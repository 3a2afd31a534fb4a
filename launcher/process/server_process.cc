#include "launcher/process/server_process.h"

#include <poll.h>
#include <unistd.h>

#include <utility>

#include "base/process.h"
#include "launcher/process/pidfd.h"

namespace ddprun::launcher {

void ServerProcess::OnServer(const std::string& process_name) {
  present_ = nullptr;
  const pid_t pid = PidOfProcess(process_name);
  if (pid == 0 || pid == getpid()) return;
  UniqueFd pidfd = OpenPidfd(pid);
  if (pidfd.valid()) present_ = std::make_shared<const UniqueFd>(std::move(pidfd));
}

void ServerProcess::OnRound(uint64_t round) {
  of_round_ = present_;
  round_ = round;
}

bool ServerProcess::HasEnded(uint64_t round) const {
  if (of_round_ == nullptr || round != round_) return false;
  pollfd watched = {of_round_->get(), POLLIN, 0};
  return poll(&watched, 1, static_cast<int>(absl::ToInt64Milliseconds(kExitTime))) == 1 &&
         (watched.revents & POLLIN) != 0;
}

}  // namespace ddprun::launcher
