#ifndef DDPRUN_LAUNCHER_OS_PROC_FILES_H_
#define DDPRUN_LAUNCHER_OS_PROC_FILES_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Small readers of /proc. Thread-safe.

// The whole content of a file; empty if it can't be read.
std::string ReadSmallFile(const std::string& path);

// The parent of a process; 0 if there is no such process (any more) or it has no parent to be seen.
pid_t ParentOf(pid_t pid);

// Every process that /proc shows.
std::vector<pid_t> AllProcesses();

// The children that the kernel counts to this process's main thread, zombies included.
std::vector<pid_t> ChildrenOfMainThread();

// The value of variable `name` in the environment that process `pid` was started with; empty if it has none, or if
// that may not be read.
std::string VariableOfProcess(pid_t pid, absl::string_view name);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_PROC_FILES_H_
