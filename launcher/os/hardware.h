#ifndef DDPRUN_LAUNCHER_OS_HARDWARE_H_
#define DDPRUN_LAUNCHER_OS_HARDWARE_H_

#include <optional>
#include <string>

namespace ddprun::launcher {

// Number of CPUs that this process may use (its affinity, as set by a batch system), at least 1. Thread-safe.
int CpuCount();

// Number of NVIDIA GPUs visible to a CUDA program started by this process: the device files, restricted by
// CUDA_VISIBLE_DEVICES as in CUDA. Loads no CUDA library. Thread-safe.
int GpuCount();

// GpuCount for a given value of the variable and a given directory of device files.
int GpuCountIn(const std::string& device_folder, const std::optional<std::string>& visible_devices);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_HARDWARE_H_
