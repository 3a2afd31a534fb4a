#ifndef DDPRUN_LAUNCHER_PROCESS_PROC_FILES_H_
#define DDPRUN_LAUNCHER_PROCESS_PROC_FILES_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ddprun::launcher {

// Small readers of /proc. Thread-safe.

// Content of a file; empty if it can't be read.
std::string ReadSmallFile(const std::string& path);

// Parent of a process; 0 if there is no such process or its parent is not visible.
pid_t ParentOf(pid_t pid);

// True if process `pid` has exited and was not reaped.
bool IsZombie(pid_t pid);

// Pids of all processes in /proc.
std::vector<pid_t> AllProcesses();

// Children of this process's main thread, including zombies.
std::vector<pid_t> ChildrenOfMainThread();

// Value of variable `name` in the initial environment of process `pid`; empty if unset or not readable.
std::string VariableOfProcess(pid_t pid, absl::string_view name);

// True if process `pid` ignores `signal`. False if that can't be read.
bool IgnoresSignal(pid_t pid, int signal);

// True if process `pid` handles or ignores `signal`, and so survives it. False if that can't be read.
bool SurvivesSignal(pid_t pid, int signal);

// Processes in the group of a shell, its leader, that the shell or a shell below it has started. Empty if `pid` is not
// a shell, according to the name of its program.
std::vector<pid_t> ProgramsBelowShell(pid_t pid);

// CPU time of all processes in this session, and of the children they have waited for.
absl::Duration CpuTimeOfSession(pid_t session);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_PROC_FILES_H_
