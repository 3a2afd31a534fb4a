#ifndef DDPRUN_LAUNCHER_CAPSULE_EXPLAIN_H_
#define DDPRUN_LAUNCHER_CAPSULE_EXPLAIN_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/capsule.pb.h"

namespace ddprun::launcher {

// PURE: returns the text of `ddprun explain` for the nodes of a capsule, in any order; some may be missing. First the
// cause, then what happened on all nodes in order of time, the end of each rank with its files, and the nodes that are
// missing. If the nodes disagree, the cause that the server named counts, else ChooseFirstCause. REQUIRES: `nodes` is
// not empty.
std::string ExplainCapsule(std::vector<capsule::v1::Node> nodes, absl::TimeZone time_zone);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CAPSULE_EXPLAIN_H_
