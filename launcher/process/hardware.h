#ifndef DDPRUN_LAUNCHER_PROCESS_HARDWARE_H_
#define DDPRUN_LAUNCHER_PROCESS_HARDWARE_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/config/cpu_binding.h"
#include "launcher/config/visible_devices.h"

// CPUs and GPUs of this host, read from files: no CUDA library is loaded.
namespace ddprun::launcher {

// Number of CPUs that this process may use (its affinity, as set by a batch system), at least 1. Thread-safe.
int CpuCount();

// GPUs whose device files are in `device_folder`, and which of them this process's environment makes visible.
// Thread-safe while no thread sets environment variables.
GpuFacts InspectGpus(const std::string& device_folder = "/dev");

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

#endif  // DDPRUN_LAUNCHER_PROCESS_HARDWARE_H_
