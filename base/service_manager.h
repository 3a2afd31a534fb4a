#ifndef DDPRUN_BASE_SERVICE_MANAGER_H_
#define DDPRUN_BASE_SERVICE_MANAGER_H_

#include "absl/strings/string_view.h"

namespace ddprun {

// Reports state such as "READY=1" (sd_notify(3)) to the service manager that started this process (systemd,
// Type=notify), in one datagram to the socket $NOTIFY_SOCKET. Does nothing if the variable is not set; errors are
// ignored. Thread-safe.
void NotifyServiceManager(absl::string_view state);

}  // namespace ddprun

#endif  // DDPRUN_BASE_SERVICE_MANAGER_H_
