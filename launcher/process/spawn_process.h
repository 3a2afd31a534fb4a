#ifndef DDPRUN_LAUNCHER_PROCESS_SPAWN_PROCESS_H_
#define DDPRUN_LAUNCHER_PROCESS_SPAWN_PROCESS_H_

#include <sys/types.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/io/file_descriptor.h"

namespace ddprun::launcher {

// Holds back a new process until the launcher has registered it and allows it to run user code. This is the launcher's
// end of a socket; the process reads one byte from the other end, and continues only if it receives one. Destroying an
// unopened gate does not end the process: kill it. Thread-compatible.
class StartGate {
 public:
  struct Ends;

  // ResourceExhausted or another error of socketpair.
  static absl::StatusOr<Ends> Create();

  // Lets the process continue. Does not block.
  void Open();

  // The errno sent by the process because it could not execute its program; unset if it has sent none. Each error is
  // returned once.
  std::optional<int> TakeError();

  int fd() const { return socket_.get(); }

 private:
  UniqueFd socket_;
};

// Both ends are close-on-exec.
struct StartGate::Ends {
  StartGate launcher;
  UniqueFd process;
};

// This process's environment, "NAME=value" each. Thread-safe while no thread sets environment variables.
inline std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.push_back(*entry);
  return entries;
}

struct SpawnRequest {
  std::string program;                   // path of the file to execute, see ResolveProgram
  std::vector<std::string> argv;         // argv[0] included; not empty
  std::vector<std::string> environment;  // the complete environment, "NAME=value" each
  // The child's descriptors 0, 1 and 2; -1: the parent's. The caller keeps ownership.
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  std::vector<int> passed_fds;       // also inherited by the child, under the same numbers
  std::vector<int> ignored_signals;  // signals ignored at its start
  std::vector<int> cpus;             // CPUs that the child is bound to; empty: the parent's
  bool dies_with_parent = true;
};

// A created process. `pidfd` becomes readable when it has exited; the pid stays valid until it is reaped.
struct Child {
  pid_t pid = -1;
  UniqueFd pidfd;
  StartGate gate;  // TakeError: why the program could not be executed; final once the process has exited
};

// Creates a process that executes a program as soon as its gate is opened. Returns immediately: the exec may take
// seconds (a cold network file system, an on-access scanner) and is not waited for. If it fails, the process sends
// errno through the gate (ExplainExecError) and exits with 127. Until its exec is complete the process can be signaled
// like any other; a fatal signal ends it before the program's first instruction.
// The child
// - leads its own session, and so its own process group: kill(-pid) reaches its children, signals from the terminal do
//   not reach it twice, and it may read from the terminal (pdb) without being stopped;
// - is killed by the kernel when the thread that called CreateChild ends (unless `dies_with_parent` is false). This is
//   PR_SET_PDEATHSIG, which watches the thread and not the process: call it only from the main thread;
// - starts with an empty signal mask and default handling of all signals, including SIGPIPE, except `ignored_signals`;
// - has the limit of open files that this process was started with (base/limits.h);
// - inherits descriptors that are not close-on-exec, and `passed_fds`. All of ours are close-on-exec; those that the
//   launcher was started with are passed on, as in torchrun. It closes all others before its exec, so that a slow exec
//   does not keep a port or a connection of a dead launcher open.
//
// Errors: those of ExplainExecError, if no process or descriptor is left; InvalidArgument for an empty argv;
// Unimplemented if the kernel has no pidfd (Linux 5.4 is required).
absl::StatusOr<Child> CreateChild(const SpawnRequest& request);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_SPAWN_PROCESS_H_
