#ifndef DDPRUN_LAUNCHER_PROCESS_PIDFD_H_
#define DDPRUN_LAUNCHER_PROCESS_PIDFD_H_

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "launcher/io/unique_fd.h"

namespace ddprun::launcher {

// Plain system calls, because glibc has wrappers only since 2.36, which can't be linked from C++.

// Opens a pidfd of process `pid` (not only a child), which refers to it even if the pid is reused later, and is
// readable once it has exited. Not valid, with errno set (ESRCH), if there is no such process. Close-on-exec.
inline UniqueFd OpenPidfd(pid_t pid) { return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))); }

// Returns false, with errno set, if the process has exited or may not be signaled.
inline bool SignalPidfd(int pidfd, int signal) {
  return syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) == 0;
}

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_PIDFD_H_
