#ifndef DDPRUN_LAUNCHER_CONFIG_SHOW_CONFIG_H_
#define DDPRUN_LAUNCHER_CONFIG_SHOW_CONFIG_H_

#include <string>

#include "absl/time/time.h"
#include "launcher/config/launch_config.h"
#include "launcher/config/options.h"

namespace ddprun::launcher {

// Returns the output of --show-config: one line per relevant setting, as "setting  value  origin" in aligned columns,
// then the notes. Ends with a newline.
std::string ShowConfig(const LaunchConfig& config, const Origins& origins, absl::TimeZone time_zone);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_SHOW_CONFIG_H_
