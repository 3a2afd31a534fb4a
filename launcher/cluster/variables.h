#ifndef DDPRUN_LAUNCHER_CLUSTER_VARIABLES_H_
#define DDPRUN_LAUNCHER_CLUSTER_VARIABLES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/flag_value.h"

// The common part of all readers of the environment: values of variables, errors that name them, and the port that all
// nodes of a job derive from its id. Every error is InvalidArgument: one line with the variable's name, its value and
// the problem.
namespace ddprun::launcher {

// Returns the value, trimmed (base/text.h), of a variable; absent if unset, blank, or "(null)", which SLURM
// writes for no value.
std::optional<std::string> Variable(const EnvironmentLookup& environment, const std::string& name);

// Returns the value as an integer from `min` to `max`, inclusive; absent as in Variable.
absl::StatusOr<std::optional<int64_t>> NumberVariable(const EnvironmentLookup& environment, const std::string& name,
                                                      int64_t min, int64_t max);

// Like NumberVariable, with the source of the value. Absent also if `name` is null.
absl::StatusOr<std::optional<Found<int>>> FoundNumber(const EnvironmentLookup& environment, const char* name,
                                                      int64_t min, int64_t max);

inline constexpr int kMaxGpus = 4096;

// Returns the number of devices that the first variable of kVendors (config/visible_devices.h) which is set lets this
// process see. An empty value means none.
absl::StatusOr<std::optional<Found<int>>> VisibleGpus(const EnvironmentLookup& environment);

// "NAME=value", for Found::source. Long values are truncated, and lines are joined.
std::string Assignment(absl::string_view name, absl::string_view value);

// "NAME=value: what is wrong"; unprintable characters of the value are shown.
absl::Status BadVariable(absl::string_view name, absl::string_view value, absl::string_view what_is_wrong);

// Default range of derived ports: below the ephemeral ports (32768 and up), above those of common services.
inline constexpr PortRange kDerivedPorts = {20000, 29999};

// Returns the port of the rendezvous server for one step of one attempt of a SLURM job, computed alike on all its nodes
// without communication. Jobs that share a node must get different ports. Their ids are close to each other, so instead
// of a hash this is a lattice: with n ports, consecutive jobs are n/golden ratio apart, consecutive restarts
// n*(sqrt(2)-1), and steps one (the first two increased until they are coprime to n, so that n of them use every port).
// Multiples of the golden ratio stay away from whole numbers: with the default range, jobs whose ids differ by k <= 50
// are at least 3800/k ports apart, and that many steps of each can run without a collision. REQUIRES: restart >= 0.
int DerivedPort(uint32_t job, uint32_t step, int restart, const std::optional<PortRange>& range);

// Returns the port for a job whose id is a text, from a hash of it.
int DerivedPort(absl::string_view job, const std::optional<PortRange>& range);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_VARIABLES_H_
