#ifndef DDPRUN_LAUNCHER_PROCESS_SERVER_PROCESS_H_
#define DDPRUN_LAUNCHER_PROCESS_SERVER_PROCESS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "launcher/io/unique_fd.h"

namespace ddprun::launcher {

// Watches the process that hosts the rendezvous server, if it is another process on this machine, so that a launcher
// that takes over the server can be certain that the process, and with it the node that it runs, has ended (protocol
// 4.4). Belongs to one thread.
class ServerProcess {
 public:
  // Time that HasEnded waits for a process whose connections the kernel has already closed.
  static constexpr absl::Duration kExitTime = absl::Milliseconds(50);

  // The server runs in the process of this name (process_name.h). Empty: unknown, or not in a launcher.
  void OnServer(const std::string& process_name);
  // That server has assigned this round.
  void OnRound(uint64_t round);

  // True if the process that assigned this round has certainly ended. May wait for kExitTime.
  bool HasEnded(uint64_t round) const;

 private:
  std::shared_ptr<const UniqueFd> present_;   // pidfd of the current server; null: unknown
  std::shared_ptr<const UniqueFd> of_round_;  // pidfd of the server that assigned round_
  uint64_t round_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_SERVER_PROCESS_H_
