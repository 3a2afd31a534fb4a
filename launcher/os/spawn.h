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
  std::vector<std::string> environment;  // the whole of it, "NAME=value" each
  // What the child gets as 0, 1 and 2; -1: the parent's own. Still owned by the caller afterwards.
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  std::vector<int> ignored_signals;  // at its start
  bool dies_with_parent = true;
};

// A process that was started. `pidfd` becomes readable when it has ended; its pid stays valid until it is reaped.
struct Child {
  pid_t pid = -1;
  UniqueFd pidfd;
};

// Starts a program and returns once it executes, so a failed exec is this call's error and not a child's death.
// The child
// - leads a session, and so a process group, of its own: kill(-pid) reaches what it starts, a signal typed at the
//   terminal does not reach it twice, and it may read the terminal (pdb) without being stopped for it;
// - is killed by the kernel when the thread that called Spawn ends (unless told otherwise). That is PR_SET_PDEATHSIG, which watches the
//   thread and not the process: call Spawn from the main thread only;
// - begins with an empty signal mask and every signal at its default, SIGPIPE too, but for those to be ignored;
// - has the limit of open files that this process was started with (rendezvous/base/file_limit.h);
// - inherits the descriptors that are not close-on-exec. All of ours are; those that the launcher was started with
//   are passed on, as torchrun does.
//
// While the program is being loaded (a slow network file system) the caller waits: the child borrows its memory
// (CLONE_VM | CLONE_VFORK), which is what makes starting cheap however large the launcher has grown.
//
// Errors: those of ExplainExecError (see ExitCodeOfStartError for the exit code that fits); InvalidArgument for an
// empty argv; Unimplemented if the kernel has no pidfd (Linux 5.4 is needed).
absl::StatusOr<Child> Spawn(const SpawnRequest& request);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_SPAWN_H_
