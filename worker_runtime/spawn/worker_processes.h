#ifndef DDPRUN_WORKER_RUNTIME_SPAWN_WORKER_PROCESSES_H_
#define DDPRUN_WORKER_RUNTIME_SPAWN_WORKER_PROCESSES_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
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
    int index = 0;  // position in start order, from 0
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

// The environment variable that identifies a program executed by Spawn; its value is a SpawnMark.
inline constexpr char kSpawnVariable[] = "DDPRUN_SPAWN";

struct SpawnMark {
  int call = 0;       // number of the Spawn call in the program, from 1
  pid_t parent = 0;   // the process that waits in that call
  int error_fd = -1;  // the descriptor of the error file

  std::string Text() const;
  // nullopt: not written by Spawn.
  static std::optional<SpawnMark> FromText(absl::string_view text);

  friend bool operator==(const SpawnMark&, const SpawnMark&) = default;
};

// Path of the error file with this descriptor; only the worker itself can open it.
std::string ErrorFileOf(int error_fd);

struct SpawnedWorker {
  int rank = 0;
  int nprocs = 1;
  int store_port = 0;  // on 127.0.0.1
  SpawnMark mark;
};

// Returns a worker's environment ("NAME=value" each): `parents` without variables of other launchers, and with those of
// worker_contract/environment.h. Pure.
std::vector<std::string> EnvironmentOf(const SpawnedWorker& worker, const std::vector<std::string>& parents);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_SPAWN_WORKER_PROCESSES_H_
