#ifndef DDPRUN_BASE_PROCESS_NAME_H_
#define DDPRUN_BASE_PROCESS_NAME_H_

#include <sys/types.h>

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// Returns a name of this process that is unique on this machine: "BOOT-ID PID-NAMESPACE PID". Empty if /proc does not
// provide it. Thread-safe.
std::string ProcessName();

// Returns the pid of the named process; 0 if it belongs to another machine, boot or pid namespace, or if the name is
// malformed. The process may no longer exist. Thread-safe.
pid_t PidOfProcess(absl::string_view name);

}  // namespace ddprun

#endif  // DDPRUN_BASE_PROCESS_NAME_H_
