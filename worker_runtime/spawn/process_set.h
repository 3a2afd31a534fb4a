#ifndef DDPRUN_WORKER_RUNTIME_SPAWN_PROCESS_SET_H_
#define DDPRUN_WORKER_RUNTIME_SPAWN_PROCESS_SET_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/steady_time.h"

namespace ddprun {

// A set of child processes. Thread-compatible. The destructor kills (SIGKILL) and reaps those that are still running.
class ProcessSet {
 public:
  struct Command {
    std::string program;                   // path
    std::vector<std::string> argv;         // argv[0] included
    std::vector<std::string> environment;  // "NAME=value" each
    int inherited_fd = -1;                 // stays open in the child under the same number, as do 0, 1 and 2
  };

  struct End {
    int index = 0;  // in start order, from 0
    bool signaled = false;
    int code = 0;  // the exit code, or the signal's number
  };

  ProcessSet() = default;
  ~ProcessSet();
  ProcessSet(const ProcessSet&) = delete;
  ProcessSet& operator=(const ProcessSet&) = delete;

  // The child has no blocked signals, reads from /dev/null, and is in this process's group, so that Ctrl-C reaches it.
  // Errors: Unavailable if it could not be executed; Unimplemented if the kernel has no pidfd (Linux 5.4 is needed).
  absl::Status Start(const Command& command);

  // Waits until at least one child has ended and returns all that have, in start order. Empty if the deadline expired
  // first.
  // REQUIRES: running() > 0.
  std::vector<End> Wait(SteadyTime deadline);

  int running() const;

  // Sends `signal` to the children that are still running.
  void Signal(int signal);

 private:
  struct Child {
    pid_t pid = -1;
    int pidfd = -1;  // -1: reaped
  };

  static End Reap(int index, Child* child);

  std::vector<Child> children_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_SPAWN_PROCESS_SET_H_
