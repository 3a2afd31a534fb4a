#ifndef DDPRUN_LAUNCHER_PROCESS_CPU_TOPOLOGY_H_
#define DDPRUN_LAUNCHER_PROCESS_CPU_TOPOLOGY_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/config/cpu_binding.h"
#include "launcher/config/visible_devices.h"

namespace ddprun::launcher {

// Reads the CPUs that this process may use, and the location of these CPUs and of the GPUs visible to its workers, from
// /sys and /proc/driver/nvidia, without loading CUDA libraries. Thread-safe.
// Unavailable: the CPUs can't be determined. FailedPrecondition: a visible device is a part of a GPU (MIG), or unknown.
// InvalidArgument: as ParseVisibleDevices.
absl::StatusOr<CpuTopology> ReadCpuTopology(const std::optional<Found<std::string>>& visible_devices);

// Like ReadCpuTopology, with /sys and /proc below `root`, and for these CPUs.
absl::StatusOr<CpuTopology> ReadCpuTopologyIn(const std::string& root, const std::vector<int>& allowed,
                                              const std::optional<Found<std::string>>& visible_devices);

// Mask in the kernel's format: one bit per CPU. Empty if `cpus` is.
std::vector<unsigned long> CpuMask(const std::vector<int>& cpus);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_CPU_TOPOLOGY_H_
