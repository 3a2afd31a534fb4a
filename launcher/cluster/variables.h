#ifndef DDPRUN_LAUNCHER_CLUSTER_VARIABLES_H_
#define DDPRUN_LAUNCHER_CLUSTER_VARIABLES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/config/environment_lookup.h"

// Reading the variables of whatever started this launcher. Every error is InvalidArgument: one line with the
// variable's name, its value and what is wrong.
namespace ddprun::launcher {

// Its value; absent if it is unset, empty, or "(null)", which SLURM writes for nothing.
std::optional<std::string> Variable(const EnvironmentLookup& environment, const std::string& name);

// Its value as a whole number from `min` to `max`, both included; absent as above.
absl::StatusOr<std::optional<int64_t>> NumberVariable(const EnvironmentLookup& environment, const std::string& name,
                                                      int64_t min, int64_t max);

// "NAME=value", for Found::source and for texts. Long values are cut.
std::string Assignment(absl::string_view name, absl::string_view value);

// "NAME=value: what is wrong".
absl::Status BadVariable(absl::string_view name, absl::string_view value, absl::string_view what_is_wrong);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_VARIABLES_H_
