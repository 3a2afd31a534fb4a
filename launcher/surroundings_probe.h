#ifndef DDPRUN_LAUNCHER_SURROUNDINGS_PROBE_H_
#define DDPRUN_LAUNCHER_SURROUNDINGS_PROBE_H_

#include <optional>

#include "absl/status/statusor.h"
#include "launcher/core/port_range.h"
#include "launcher/core/surroundings.h"

namespace ddprun::launcher {

// Looks at what started this process: its environment, and files that its variables name. `port_range` limits the
// port of an endpoint that is derived. InvalidArgument: the surroundings contradict themselves; one line.
absl::StatusOr<Surroundings> LookAtSurroundings(const std::optional<PortRange>& port_range);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SURROUNDINGS_PROBE_H_
