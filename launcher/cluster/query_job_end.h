#ifndef DDPRUN_LAUNCHER_CLUSTER_QUERY_JOB_END_H_
#define DDPRUN_LAUNCHER_CLUSTER_QUERY_JOB_END_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "launcher/config/launch_config.h"
#include "launcher/io/event_loop.h"
#include "launcher/process/run_command.h"

namespace ddprun::launcher {

// Calls `on_end` with the time limit of the configuration's batch job, if it can be found: at once if the environment
// has it, or from the loop once squeue has answered. Returns the running squeue, or null. `environment` is squeue's;
// `on_end` must not destroy the result. Belongs to the loop's thread, which must be the main thread.
std::unique_ptr<Command> QueryJobEnd(const LaunchConfig& config, EventLoop* loop, std::vector<std::string> environment,
                                     std::function<void(absl::Time)> on_end);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_QUERY_JOB_END_H_
