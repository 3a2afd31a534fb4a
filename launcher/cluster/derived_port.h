#ifndef DDPRUN_LAUNCHER_CLUSTER_DERIVED_PORT_H_
#define DDPRUN_LAUNCHER_CLUSTER_DERIVED_PORT_H_

#include <cstdint>
#include <optional>

#include "launcher/config/port_range.h"

namespace ddprun::launcher {

// Where the server of a SLURM step listens unless a range is given: below the ports that systems give out by
// themselves (32768 and up), above those of common services.
inline constexpr PortRange kDerivedPorts = {20000, 29999};

// The port of the rendezvous server of one step of one attempt of a SLURM job: all its nodes come to the same without
// a word. Jobs that share a node must not come to the same one. Their ids are close to each other, so this is no hash
// but a lattice: with n ports, a job is n/golden ratio away from the one before it, a restart n*(sqrt(2)-1), a step
// one (the first two moved up until they have no divisor in common with n, so that n of them use every port). Multiples
// of the golden ratio keep away from whole numbers: with the default range, jobs whose ids differ by k <= 50 are at
// least 3800/k ports apart, and so many steps of each can run without meeting. REQUIRES: restart >= 0.
int DerivedPort(uint32_t job, uint32_t step, int restart, const std::optional<PortRange>& range);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_DERIVED_PORT_H_
