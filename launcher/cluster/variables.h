#ifndef DDPRUN_LAUNCHER_CLUSTER_VARIABLES_H_
#define DDPRUN_LAUNCHER_CLUSTER_VARIABLES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/config/cluster_environment.h"

// Reads environment variables set by the system that started this launcher. Every error is InvalidArgument: one line
// with the variable's name, its value and what is wrong.
namespace ddprun::launcher {

// Value, trimmed (base/text.h), of a variable; absent if unset, blank, or "(null)", which SLURM writes for no
// value.
std::optional<std::string> Variable(const EnvironmentLookup& environment, const std::string& name);

// Value as an integer from `min` to `max`, inclusive; absent as above.
absl::StatusOr<std::optional<int64_t>> NumberVariable(const EnvironmentLookup& environment, const std::string& name,
                                                      int64_t min, int64_t max);

inline constexpr int kMaxGpus = 4096;

// As NumberVariable, with the source of the value. Absent also if `name` is null.
absl::StatusOr<std::optional<Found<int>>> FoundNumber(const EnvironmentLookup& environment, const char* name,
                                                      int64_t min, int64_t max);

// Number of devices in a list such as "0,1" or "GPU-8b1f,MIG-77aa". As in the drivers, the list ends at the first entry
// that is not a device.
int CountDevices(absl::string_view list);

// GPUs that CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES lets this process see, if one is set. An empty value means
// none.
absl::StatusOr<std::optional<Found<int>>> VisibleGpus(const EnvironmentLookup& environment);

// Value as a list of at least one and at most kMaxNodes hosts, separated by blanks, commas or newlines, or a JSON list
// of strings; absent as above.
absl::StatusOr<std::optional<std::vector<std::string>>> HostNames(const EnvironmentLookup& environment,
                                                                  const std::string& name);

// "NAME=value", for Found::source. Long values are truncated, and lines are joined.
std::string Assignment(absl::string_view name, absl::string_view value);

// "NAME=value: what is wrong"; unprintable characters of the value are shown.
absl::Status BadVariable(absl::string_view name, absl::string_view value, absl::string_view what_is_wrong);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_VARIABLES_H_
