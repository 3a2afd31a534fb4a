#ifndef DDPRUN_LAUNCHER_PROCESS_HARDWARE_H_
#define DDPRUN_LAUNCHER_PROCESS_HARDWARE_H_

#include <string>

#include "launcher/config/visible_devices.h"

namespace ddprun::launcher {

// Number of CPUs that this process may use (its affinity, as set by a batch system), at least 1. Thread-safe.
int CpuCount();

// GPUs whose device files are in `device_folder`, and which of them this process's environment makes visible. Loads no
// CUDA library. Thread-safe while no thread sets environment variables.
GpuFacts InspectGpus(const std::string& device_folder = "/dev");

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_HARDWARE_H_
