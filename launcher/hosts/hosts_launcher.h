#ifndef DDPRUN_LAUNCHER_HOSTS_HOSTS_LAUNCHER_H_
#define DDPRUN_LAUNCHER_HOSTS_HOSTS_LAUNCHER_H_

#include <string>

#include "absl/status/statusor.h"
#include "launcher/config/options.h"
#include "launcher/hosts/hosts_plan.h"

namespace ddprun::launcher {

// Reads the hostfile and what else a plan needs of this host; `python` is HostsInput's. InvalidArgument: one line.
absl::StatusOr<HostsInput> ReadHostsInput(const Options& options, const std::string& python);

// Runs the job on its hosts and returns the exit code. Call it from the main thread, before any other thread exists.
int RunOnHosts(HostsPlan plan);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_HOSTS_LAUNCHER_H_
