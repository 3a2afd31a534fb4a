#ifndef DDPRUN_LAUNCHER_CONFIG_SHOW_CONFIG_H_
#define DDPRUN_LAUNCHER_CONFIG_SHOW_CONFIG_H_

#include <string>

#include "absl/time/time.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/launch_config.h"
#include "launcher/config/options.h"

namespace ddprun::launcher {

// Returns the output of --show-config: one line per relevant setting, as "setting  value  origin" in aligned columns,
// then the notes. `cluster` is the result of MergeEnvironment. Ends with a newline.
std::string ShowConfig(const LaunchConfig& config, const Options& options, const Origins& origins,
                       const ClusterEnvironment& cluster, absl::TimeZone time_zone);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_SHOW_CONFIG_H_
