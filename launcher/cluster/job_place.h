#ifndef DDPRUN_LAUNCHER_CLUSTER_JOB_PLACE_H_
#define DDPRUN_LAUNCHER_CLUSTER_JOB_PLACE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "launcher/config/cluster_environment.h"

namespace ddprun::launcher {

// Sets the description, and what follows from this node's place among `nnodes` nodes: topology, and with all their
// names in `hosts`, if they are several, its own name. `system`: "SkyPilot". REQUIRES: 0 <= index < nnodes.
void SetPlace(absl::string_view system, Found<int> nnodes, Found<int> index, std::vector<std::string> hosts,
              ClusterEnvironment& result);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_JOB_PLACE_H_
