#ifndef DDPRUN_LAUNCHER_INSPECT_GPU_USAGE_H_
#define DDPRUN_LAUNCHER_INSPECT_GPU_USAGE_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>

namespace ddprun::launcher {

struct GpuUse {
  // Share of the last moment in which the process's GPU was busy, also for other processes. Unset: not known (MIG).
  std::optional<double> busy;
  int64_t memory_bytes = 0;
};

// Returns what the processes of this host use of its NVIDIA GPUs, from the driver's library (NVML); empty without it,
// or in a container that has pids of its own. May take seconds, the first time: not for the loop's thread. Thread-safe.
std::map<pid_t, GpuUse> ReadGpuUse();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_INSPECT_GPU_USAGE_H_
