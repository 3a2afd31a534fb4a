#ifndef DDPRUN_TESTS_SIMGPU_CUDA_SIMCUDA_H_
#define DDPRUN_TESTS_SIMGPU_CUDA_SIMCUDA_H_

#include <cuda_runtime_api.h>

#include <functional>
#include <utility>

// Functions of the simulated CUDA runtime beyond CUDA's own, for the simulated NCCL, for the operators and for tests.
// Thread-safe. They have C linkage, so that a test program finds them with dlsym; it is not linked with the simulation.
extern "C" {

// Address at which the simulated device reads and writes this device memory, which is inaccessible at its own address.
// Returns a host address unchanged.
void* simcuda_view(const void* address);

// The device that this memory is allocated on; -1 if it is not allocated device memory.
int simcuda_device_of(const void* address);

// Index on the host of a device that this process sees (CUDA_VISIBLE_DEVICES).
int simcuda_physical(int device);

int simcuda_device_of_stream(cudaStream_t stream);

// Appends `work(data)` to a stream. A thread of the stream runs it, in order.
void simcuda_enqueue(cudaStream_t stream, void (*work)(void*), void* data);

// Every later call for this device fails with `error` (a cudaError_t), as after a fault of a kernel.
void simcuda_set_sticky_error(int device, int error);

// A fault point: SIMCUDA_DIE kills this process here, SIMCUDA_FAULT breaks the current device. Returns 1 if
// SIMNCCL_FAIL names this point.
int simcuda_point(const char* point);

// Allocated bytes, and existing streams, on all devices of this process.
long simcuda_used_bytes();
long simcuda_stream_count();
}

namespace simgpu {

// simcuda_enqueue for any callable.
inline void Enqueue(cudaStream_t stream, std::function<void()> work) {
  simcuda_enqueue(
      stream,
      [](void* data) {
        auto* const function = static_cast<std::function<void()>*>(data);
        (*function)();
        delete function;
      },
      new std::function<void()>(std::move(work)));
}

}  // namespace simgpu

#endif  // DDPRUN_TESTS_SIMGPU_CUDA_SIMCUDA_H_
