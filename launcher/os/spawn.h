#ifndef DDPRUN_LAUNCHER_OS_SPAWN_H_
#define DDPRUN_LAUNCHER_OS_SPAWN_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/os/unique_fd.h"

namespace ddprun::launcher {

struct SpawnRequest {
  std::string program;                   // path of the file to execute, see ResolveProgram
  std::vector<std::string> argv;         // argv[0] included; not empty
  std::vector<std::string> environment;  // the complete environment, "NAME=value" each
  // The child's descriptors 0, 1 and 2; -1: the parent's. The caller keeps ownership.
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  std::vector<int> passed_fds;       // the child has these as well, under the same numbers
  std::vector<int> ignored_signals;  // at its start
  std::vector<int> cpus;             // to which it is bound; empty: as the parent
  bool dies_with_parent = true;
};

// A started process. `pidfd` becomes readable when it has exited; its pid stays valid until it is reaped.
struct Child {
  pid_t pid = -1;
  UniqueFd pidfd;
};

// Starts a program and returns after its exec, so a failed exec is an error of this call and not a child's exit.
// The child
// - leads its own session, and so its own process group: kill(-pid) reaches its children, signals from the terminal do
//   not reach it twice, and it may read from the terminal (pdb) without being stopped;
// - is killed by the kernel when the thread that called Spawn ends (unless told otherwise). That is PR_SET_PDEATHSIG,
//   which watches the thread and not the process: call Spawn only from the main thread;
// - starts with an empty signal mask and default handling of all signals, including SIGPIPE, except `ignored_signals`;
// - has the limit of open files that this process was started with (rendezvous/base/file_limit.h);
// - inherits descriptors that are not close-on-exec, and `passed_fds`. All of ours are close-on-exec; those that the
//   launcher was started with are passed on, as in torchrun.
//
// The caller waits while the program is loaded (which can be slow on a network file system), because the child uses its
// memory until then (CLONE_VM | CLONE_VFORK). That makes the start cheap even for a large launcher.
//
// Errors: those of ExplainExecError (ExitCodeOfStartError has the matching exit code); InvalidArgument for an empty
// argv; Unimplemented if the kernel has no pidfd (Linux 5.4 is required).
absl::StatusOr<Child> Spawn(const SpawnRequest& request);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_SPAWN_H_
