#ifndef DDPRUN_LAUNCHER_OS_CPU_TOPOLOGY_H_
#define DDPRUN_LAUNCHER_OS_CPU_TOPOLOGY_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/config/cpu_binding.h"

namespace ddprun::launcher {

// The CPUs that this process may use, and where they and the GPUs that its workers would see lie, as /sys and
// /proc/driver/nvidia tell; no CUDA library is loaded. `visible_devices`: $CUDA_VISIBLE_DEVICES. Thread-safe.
// Unavailable: /sys does not tell. FailedPrecondition: a visible device is a part of a GPU (MIG), or not known here.
absl::StatusOr<CpuTopology> ReadCpuTopology(const std::optional<std::string>& visible_devices);

// The same of a host whose /sys and /proc lie in `root`, for these CPUs.
absl::StatusOr<CpuTopology> ReadCpuTopologyIn(const std::string& root, const std::vector<int>& allowed,
                                              const std::optional<std::string>& visible_devices);

// As the kernel takes it: one bit for each CPU. Empty: no CPU.
std::vector<unsigned long> CpuMask(const std::vector<int>& cpus);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_CPU_TOPOLOGY_H_
