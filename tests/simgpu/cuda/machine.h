#ifndef DDPRUN_TESTS_SIMGPU_CUDA_MACHINE_H_
#define DDPRUN_TESTS_SIMGPU_CUDA_MACHINE_H_

#include <cuda_runtime_api.h>
#include <stddef.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "tests/simgpu/cuda/stream.h"

// The simulated devices of this process.
namespace simgpu {

inline constexpr int kMaxDevices = 16;
inline constexpr size_t kArena = size_t{64} << 30;  // address space of one device
inline constexpr size_t kPage = 4096;

// Device memory is a sparse memory file mapped twice: at `base`, where the host gets SIGSEGV as with a GPU, and at
// `view`, where the simulated device uses it.
struct Device {
  std::atomic<char*> base{nullptr};
  char* view = nullptr;
  std::mutex mutex;
  std::map<size_t, size_t> used;  // offset -> size
  size_t used_bytes = 0;
  Stream* default_stream = nullptr;
  std::set<Stream*> streams;
  std::atomic<cudaError_t> sticky{cudaSuccess};
};

struct Machine {
  Machine();

  int count = 0;
  int physical[kMaxDevices];  // index on the host of each visible device
  size_t memory = 0;          // bytes of each device
  Device devices[kMaxDevices];
  std::mutex mutex;
  std::map<const char*, size_t> pinned;  // address -> size
};

// Never destroyed: the threads of streams outlive main.
Machine& TheMachine();

// A device, whose address space and default stream are made by the first call.
Device& DeviceAt(int index);

// The current device of this thread. CUDA: each host thread has its own, 0 at first.
int CurrentDevice();
void SetCurrentDevice(int index);

// The device whose address space contains this address, allocated or not; -1 if none does.
int ArenaOf(const void* address);

bool IsPinned(const void* address);

// The stream of a handle. Handles 0, 1 and 2 are the default streams of the current device.
Stream* StreamOf(cudaStream_t handle);

// Waits for all streams of a device.
void SynchronizeDevice(int index);

// Keeps the error for cudaGetLastError, and returns it.
cudaError_t Remember(cudaError_t error);

// Initializes the driver in this process, as the first call of the real runtime does: it opens /dev/nvidiactl if that
// exists. Returns false in a process that was forked from one that had initialized it (CUDA Programming Guide,
// "Initialization": the context cannot be used after fork).
bool OpenDriver();

// Begins a call that needs a device: an error if there is none or if it is broken. CUDA Runtime API, "Error Handling":
// after a fault of a kernel every later call fails with the same error until the process ends.
cudaError_t Enter();

#define SIMCUDA_RETURN_IF_ERROR(expression)                                                                 \
  do {                                                                                                      \
    if (const cudaError_t simcuda_error = (expression); simcuda_error != cudaSuccess) return simcuda_error; \
  } while (false)

}  // namespace simgpu

#endif  // DDPRUN_TESTS_SIMGPU_CUDA_MACHINE_H_
