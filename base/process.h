#ifndef DDPRUN_BASE_PROCESS_H_
#define DDPRUN_BASE_PROCESS_H_

#include <sys/types.h>

#include <string>

#include "absl/strings/string_view.h"

// This process, its host and its signals.
namespace ddprun {

// Returns a name of this process that is unique on this machine: "BOOT-ID PID-NAMESPACE PID". Empty if /proc does not
// provide it. Thread-safe.
std::string ProcessName();

// Returns the pid of the named process; 0 if it belongs to another machine, boot or pid namespace, or if the name is
// malformed. The process may no longer exist. Thread-safe.
pid_t PidOfProcess(absl::string_view name);

// Returns the node name from uname; never empty. Thread-safe.
std::string Hostname();

// Returns "SIGKILL", "SIGRTMIN+3"; "signal 77" for a number that Linux does not have.
std::string SignalName(int signal);

// Restores the default action of every signal and unblocks all of them: a program inherits both from its parent, and
// with SIGCHLD ignored no child's exit status can be read, with SIGTERM blocked the program can't be stopped. SIGHUP,
// SIGINT and SIGQUIT stay ignored, because nohup and shells (for background jobs) ignore them on purpose. Call first in
// main.
void ResetSignals();

}  // namespace ddprun

#endif  // DDPRUN_BASE_PROCESS_H_
