#ifndef DDPRUN_BASE_PROCESS_NAME_H_
#define DDPRUN_BASE_PROCESS_NAME_H_

#include <sys/types.h>

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// A name for this process by which others on this machine find it: "BOOT-ID PID-NAMESPACE PID". Empty if /proc does not
// tell. Thread-safe.
std::string ProcessName();

// The pid of the process of that name; 0 if it belongs to another machine, another boot or another pid namespace, or
// the name is none. Says nothing of whether the process still runs. Thread-safe.
pid_t PidOfProcess(absl::string_view name);

}  // namespace ddprun

#endif  // DDPRUN_BASE_PROCESS_NAME_H_
