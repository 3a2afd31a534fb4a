#ifndef DDPRUN_LAUNCHER_OS_SERVER_PROCESS_H_
#define DDPRUN_LAUNCHER_OS_SERVER_PROCESS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "launcher/os/unique_fd.h"

namespace ddprun::launcher {

// Watches the process that hosts the rendezvous server, if it is another one on this machine: so whoever takes over the
// server can be certain that this process, and with it the node that it runs, has ended (protocol 4.4). Belongs to one
// thread.
class ServerProcess {
 public:
  // How long HasEnded waits for a process whose connections the kernel has closed already.
  static constexpr absl::Duration kExitTime = absl::Milliseconds(50);

  // The server is in the process of this name (process_name.h). Empty: not known, or not in a launcher.
  void OnServer(const std::string& process_name);
  // That server has given out this round.
  void OnRound(uint64_t round);

  // Whether the process that gave out this round is certain to have ended. May wait for kExitTime.
  bool HasEnded(uint64_t round) const;

 private:
  std::shared_ptr<const UniqueFd> present_;   // pidfd; null: not known
  std::shared_ptr<const UniqueFd> of_round_;  // of the server that gave out round_
  uint64_t round_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_SERVER_PROCESS_H_
