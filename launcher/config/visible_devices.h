#ifndef DDPRUN_LAUNCHER_CONFIG_VISIBLE_DEVICES_H_
#define DDPRUN_LAUNCHER_CONFIG_VISIBLE_DEVICES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/config/cluster_environment.h"

// PURE. The GPUs of a node, and those of them that its workers see.
namespace ddprun::launcher {

inline constexpr char kCudaVisibleDevices[] = "CUDA_VISIBLE_DEVICES";
// Takes precedence over CUDA_VISIBLE_DEVICES in PyTorch for ROCm, unless it is empty.
inline constexpr char kHipVisibleDevices[] = "HIP_VISIBLE_DEVICES";

// Returns the list in effect, with "NAME=LIST" as its source; absent if all devices are visible.
std::optional<Found<std::string>> FindVisibleDevices(const EnvironmentLookup& environment);

// Returns the devices of a list: indices, and names that begin with GPU- or MIG-. As in the drivers the list ends at an
// empty entry or a negative number; NoDevFiles (SLURM), none and void end it, too.
// InvalidArgument: an entry before the end is no device; one line with the variable, its value and what to do.
absl::StatusOr<std::vector<std::string>> ParseVisibleDevices(const Found<std::string>& visible);

struct GpuFacts {
  int nvidia = 0;     // device files /dev/nvidia0, /dev/nvidia1, ...
  std::string other;  // "/dev/kfd (AMD)": GPUs of another kind, which are not counted; empty: none
  std::optional<Found<std::string>> visible;
};

struct GpuCount {
  int visible = 0;
  std::string text;  // text about what was found: "this node has 4 NVIDIA GPUs, but CUDA_VISIBLE_DEVICES=-1 hides them"
};

// Counts the GPUs that a CUDA program sees. InvalidArgument: as ParseVisibleDevices.
absl::StatusOr<GpuCount> CountGpus(const GpuFacts& facts);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_VISIBLE_DEVICES_H_
