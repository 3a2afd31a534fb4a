#ifndef DDPRUN_LAUNCHER_PROCESS_PROC_FILES_H_
#define DDPRUN_LAUNCHER_PROCESS_PROC_FILES_H_

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "launcher/io/file_descriptor.h"

// Processes by pid: pidfds to refer to them, and what /proc tells about them. Thread-safe.
namespace ddprun::launcher {

// Plain system calls, because glibc has wrappers only since 2.36, which can't be linked from C++.

// Opens a pidfd of process `pid` (not only a child), which refers to it even if the pid is reused later, and is
// readable once it has exited. Not valid, with errno set (ESRCH), if there is no such process. Close-on-exec.
inline UniqueFd OpenPidfd(pid_t pid) { return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))); }

// Returns false, with errno set, if the process has exited or may not be signaled.
inline bool SignalPidfd(int pidfd, int signal) {
  return syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) == 0;
}

// Content of a file; empty if it can't be read.
std::string ReadSmallFile(const std::string& path);

// Words of this process's command line.
std::vector<std::string> OwnCommandLine();

// Content of /proc/PID/status; empty if there is no such process.
std::string StatusOf(pid_t pid);

// Value of "Name:\tvalue" in the content of /proc/PID/status; empty if there is none.
std::string StatusField(absl::string_view status, absl::string_view name);

// Parent of a process; 0 if there is no such process or its parent is not visible.
pid_t ParentOf(pid_t pid);

// True if process `pid` has exited and was not reaped.
bool IsZombie(pid_t pid);

// Pids of all processes in /proc.
std::vector<pid_t> AllProcesses();

// Descendants of process `pid`, at most `most`, parents before their children, including zombies.
std::vector<pid_t> DescendantsOf(pid_t pid, size_t most);

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

// CPU time of a process and of the children it has waited for; zero if that can't be read.
absl::Duration CpuTimeOf(pid_t pid);

// CPU time of all processes in this session, and of the children they have waited for.
absl::Duration CpuTimeOfSession(pid_t session);

// Counters of the kernel's OOM kills. Unprivileged users can't see which process was killed, so this is evidence but
// not proof: compare a sample from before the workers' start with one taken after a worker was killed by SIGKILL.
struct OomSample {
  std::optional<int64_t> in_cgroup;  // in this process's memory cgroup, whose limit it shares with its workers
  std::optional<int64_t> on_host;    // anywhere on this host (in a container: what the kernel shows)
};

// Reads the counters; those that can't be read are unset. `root` is "" except in tests.
OomSample SampleOom(const std::string& root = "");

// One line about OOM kills between the two samples; empty if there were none.
std::string OomEvidence(const OomSample& before, const OomSample& after);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_PROC_FILES_H_
