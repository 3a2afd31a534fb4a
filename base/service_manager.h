#ifndef DDPRUN_BASE_SERVICE_MANAGER_H_
#define DDPRUN_BASE_SERVICE_MANAGER_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// Tells the service manager that started this process (systemd, Type=notify) about its state, by one datagram to the
// socket that $NOTIFY_SOCKET names: lines such as "READY=1" (sd_notify(3)). Does nothing where the variable is not set
// or nobody listens: a service manager that does not hear is no reason to end. Thread-safe.
void NotifyServiceManager(absl::string_view state);

// What announces a reload that begins now; to be followed by "READY=1" when it is done.
std::string ReloadingState();

}  // namespace ddprun

#endif  // DDPRUN_BASE_SERVICE_MANAGER_H_
