#ifndef DDPRUN_LAUNCHER_OS_PIDFD_H_
#define DDPRUN_LAUNCHER_OS_PIDFD_H_

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "launcher/os/unique_fd.h"

namespace ddprun::launcher {

// The system calls themselves: glibc has wrappers only since 2.36, and those can't be linked from C++ there.

// Refers to process `pid` (any, not only a child) whatever becomes of its number; readable when it has ended. Not
// valid, with errno set (ESRCH), if there is none. Close-on-exec.
inline UniqueFd OpenPidfd(pid_t pid) { return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))); }

// Returns false, with errno set, if the process is gone or must not be signalled.
inline bool SignalPidfd(int pidfd, int signal) {
  return syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) == 0;
}

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_PIDFD_H_
