#ifndef DDPRUN_LAUNCHER_OS_HARDWARE_H_
#define DDPRUN_LAUNCHER_OS_HARDWARE_H_

#include <optional>
#include <string>

namespace ddprun::launcher {

// The CPUs that this process may use (its affinity, so what a batch system gave it), at least 1. Thread-safe.
int CpuCount();

// The NVIDIA GPUs that a CUDA program started from here would see: the device files, narrowed by
// CUDA_VISIBLE_DEVICES as CUDA reads it. No CUDA library is needed or loaded. Thread-safe.
int GpuCount();

// The same, with the variable's value and the folder of device files given.
int GpuCountIn(const std::string& device_folder, const std::optional<std::string>& visible_devices);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_HARDWARE_H_
