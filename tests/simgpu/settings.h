#ifndef DDPRUN_TESTS_SIMGPU_SETTINGS_H_
#define DDPRUN_TESTS_SIMGPU_SETTINGS_H_

#include <stdlib.h>
#include <unistd.h>

namespace simgpu {

// Value of an environment variable; README.md lists them. An empty variable counts as not set.
inline const char* TextSetting(const char* name) {
  const char* const value = getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

inline long NumberSetting(const char* name, long otherwise) {
  const char* const value = TextSetting(name);
  return value != nullptr ? atol(value) : otherwise;
}

// Milliseconds that SIMCUDA_CALIBRATED spends where a real device does, as measured on an H200 (docs/gpu.md). Once in a
// process: CUDA's start, the context of a device, cuBLAS, NCCL's kernels. Once in a communicator: creation, end.
inline constexpr long kStartMs = 200;
inline constexpr long kContextMs = 200;
inline constexpr long kFirstMatmulMs = 100;
inline constexpr long kNcclKernelsMs = 350;
inline constexpr long kCommunicatorMs = 90;
inline constexpr long kAbortMs = 500;
inline constexpr long kShutdownMs = 400;

// Takes the time that a real device takes, if SIMCUDA_CALIBRATED is 1.
inline void SpendCalibrated(long milliseconds) {
  static const bool calibrated = NumberSetting("SIMCUDA_CALIBRATED", 0) != 0;
  if (calibrated) usleep(static_cast<useconds_t>(1000 * milliseconds));
}

}  // namespace simgpu

#endif  // DDPRUN_TESTS_SIMGPU_SETTINGS_H_
