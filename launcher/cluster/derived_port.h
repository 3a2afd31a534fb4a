#ifndef DDPRUN_LAUNCHER_CLUSTER_DERIVED_PORT_H_
#define DDPRUN_LAUNCHER_CLUSTER_DERIVED_PORT_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "launcher/config/flag_value.h"

namespace ddprun::launcher {

// Default range of derived ports: below the ephemeral ports (32768 and up), above those of common
// services.
inline constexpr PortRange kDerivedPorts = {20000, 29999};

// Port of the rendezvous server for one step of one attempt of a SLURM job, computed alike on all its nodes without
// communication. Jobs that share a node must get different ports. Their ids are close to each other, so instead of a
// hash this is a lattice: with n ports, consecutive jobs are n/golden ratio apart, consecutive restarts n*(sqrt(2)-1),
// and steps one (the first two increased until they are coprime to n, so that n of them use every port). Multiples of
// the golden ratio stay away from whole numbers: with the default range, jobs whose ids differ by k <= 50 are at least
// 3800/k ports apart, and that many steps of each can run without a collision. REQUIRES: restart >= 0.
int DerivedPort(uint32_t job, uint32_t step, int restart, const std::optional<PortRange>& range);

// Port for a job whose id is a text, from a hash of it.
int DerivedPort(absl::string_view job, const std::optional<PortRange>& range);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_DERIVED_PORT_H_
