#ifndef DDPRUN_LAUNCHER_CLUSTER_VARIABLES_H_
#define DDPRUN_LAUNCHER_CLUSTER_VARIABLES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/config/environment_lookup.h"

// Reads environment variables set by the system that started this launcher. Every error is InvalidArgument: one line
// with the variable's name, its value and what is wrong.
namespace ddprun::launcher {

// Value of a variable; absent if unset, empty, or "(null)", which SLURM writes for no value.
std::optional<std::string> Variable(const EnvironmentLookup& environment, const std::string& name);

// Value as an integer from `min` to `max`, inclusive; absent as above.
absl::StatusOr<std::optional<int64_t>> NumberVariable(const EnvironmentLookup& environment, const std::string& name,
                                                      int64_t min, int64_t max);

// "NAME=value", for Found::source and for messages. Long values are truncated.
std::string Assignment(absl::string_view name, absl::string_view value);

// "NAME=value: what is wrong".
absl::Status BadVariable(absl::string_view name, absl::string_view value, absl::string_view what_is_wrong);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_VARIABLES_H_
