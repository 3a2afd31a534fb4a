// CUDA Runtime API, "Memory Management", with the rules of "API synchronization behavior" for copies.
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <vector>

#include "tests/simgpu/cuda/machine.h"
#include "tests/simgpu/cuda/simcuda.h"

namespace simgpu {
namespace {

constexpr size_t kAlignment = 512;  // alignment of cudaMalloc

bool IsPageable(const void* address) { return ArenaOf(address) < 0 && !IsPinned(address); }

cudaError_t CheckAddress(const void* address) {
  const int device = ArenaOf(address);
  if (device < 0) return cudaSuccess;
  if (simcuda_device_of(address) < 0) return Remember(cudaErrorInvalidValue);  // not allocated
  return Remember(TheMachine().devices[device].sticky);
}

// "API synchronization behavior": pageable memory is staged before the call returns; a copy to pageable memory returns
// when it is complete; all others may return before.
cudaError_t Copy(void* to, const void* from, size_t size, cudaStream_t handle, bool blocking) {
  if (size == 0) return cudaSuccess;
  SIMCUDA_RETURN_IF_ERROR(CheckAddress(to));
  SIMCUDA_RETURN_IF_ERROR(CheckAddress(from));
  Stream* const stream = StreamOf(handle);
  void* const target = simcuda_view(to);
  if (IsPageable(from)) {
    const char* const source = static_cast<const char*>(from);
    stream->Enqueue(
        [target, staged = std::vector<char>(source, source + size)] { memcpy(target, staged.data(), staged.size()); });
  } else {
    stream->Enqueue([target, source = simcuda_view(from), size] { memmove(target, source, size); });
  }
  if (blocking || IsPageable(to)) stream->Wait();
  return cudaSuccess;
}

}  // namespace
}  // namespace simgpu

using simgpu::Copy;
using simgpu::Device;
using simgpu::Enter;
using simgpu::Remember;
using simgpu::TheMachine;

extern "C" {

cudaError_t cudaMalloc(void** address, size_t size) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  *address = nullptr;
  if (size == 0) return cudaSuccess;
  size = (size + simgpu::kAlignment - 1) / simgpu::kAlignment * simgpu::kAlignment;
  Device& device = simgpu::DeviceAt(simgpu::CurrentDevice());
  std::lock_guard<std::mutex> lock(device.mutex);
  if (device.used_bytes + size > TheMachine().memory) return Remember(cudaErrorMemoryAllocation);
  size_t offset = 0;  // start of the first gap that is large enough
  for (const auto& [begin, length] : device.used) {
    if (begin - offset >= size) break;
    offset = begin + length;
  }
  if (offset + size > simgpu::kArena) return Remember(cudaErrorMemoryAllocation);
  device.used[offset] = size;
  device.used_bytes += size;
  *address = device.base + offset;
  return cudaSuccess;
}

// Waits for the device's work, as cudaFree does. Later access by the host or the device finds zeros.
cudaError_t cudaFree(void* address) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  if (address == nullptr) return cudaSuccess;
  const int index = simgpu::ArenaOf(address);
  if (index < 0) return Remember(cudaErrorInvalidValue);
  simgpu::SynchronizeDevice(index);
  Device& device = simgpu::DeviceAt(index);
  std::lock_guard<std::mutex> lock(device.mutex);
  const auto found = device.used.find(static_cast<char*>(address) - device.base);
  if (found == device.used.end()) return Remember(cudaErrorInvalidValue);
  const auto [offset, size] = *found;
  const size_t first = (offset + simgpu::kPage - 1) / simgpu::kPage * simgpu::kPage;
  const size_t last = (offset + size) / simgpu::kPage * simgpu::kPage;
  if (last > first) madvise(device.view + first, last - first, MADV_REMOVE);
  device.used_bytes -= size;
  device.used.erase(found);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  Device& device = simgpu::DeviceAt(simgpu::CurrentDevice());
  std::lock_guard<std::mutex> lock(device.mutex);
  *total = TheMachine().memory;
  *free = TheMachine().memory - device.used_bytes;
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** address, size_t size, unsigned) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  if (posix_memalign(address, simgpu::kPage, size != 0 ? size : 1) != 0) return Remember(cudaErrorMemoryAllocation);
  std::lock_guard<std::mutex> lock(TheMachine().mutex);
  TheMachine().pinned[static_cast<char*>(*address)] = size;
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** address, size_t size) { return cudaHostAlloc(address, size, cudaHostAllocDefault); }

cudaError_t cudaFreeHost(void* address) {
  if (address == nullptr) return cudaSuccess;
  SIMCUDA_RETURN_IF_ERROR(cudaHostUnregister(address));
  free(address);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* address, size_t size, unsigned) {
  std::lock_guard<std::mutex> lock(TheMachine().mutex);
  TheMachine().pinned[static_cast<char*>(address)] = size;
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* address) {
  std::lock_guard<std::mutex> lock(TheMachine().mutex);
  return TheMachine().pinned.erase(static_cast<char*>(address)) != 0 ? cudaSuccess : Remember(cudaErrorInvalidValue);
}

// "Unified Addressing".
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  memset(attributes, 0, sizeof *attributes);
  attributes->device = simcuda_device_of(address);
  attributes->type = cudaMemoryTypeUnregistered;
  if (attributes->device >= 0) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->devicePointer = const_cast<void*>(address);
    return cudaSuccess;
  }
  attributes->hostPointer = const_cast<void*>(address);
  if (simgpu::IsPinned(address)) {
    attributes->type = cudaMemoryTypeHost;
    attributes->device = simgpu::CurrentDevice();
    attributes->devicePointer = attributes->hostPointer;
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind, cudaStream_t stream) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  return Copy(to, from, size, stream, /*blocking=*/false);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  return Copy(to, from, size, nullptr, /*blocking=*/true);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, cudaStream_t stream) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  return Copy(to, from, size, stream, /*blocking=*/false);
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t stream) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  for (size_t row = 0; row < height; ++row) {
    SIMCUDA_RETURN_IF_ERROR(Copy(static_cast<char*>(to) + row * to_pitch,
                                 static_cast<const char*>(from) + row * from_pitch, width, stream,
                                 /*blocking=*/false));
  }
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* address, int value, size_t size, cudaStream_t stream) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  if (size != 0 && simcuda_device_of(address) < 0) return Remember(cudaErrorInvalidValue);
  simgpu::StreamOf(stream)->Enqueue([view = simcuda_view(address), value, size] { memset(view, value, size); });
  return cudaSuccess;
}

cudaError_t cudaMemset(void* address, int value, size_t size) { return cudaMemsetAsync(address, value, size, nullptr); }
}
