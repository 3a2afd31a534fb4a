// CUDA Runtime API, "Device Management" and "Error Handling": devices, their properties, names of errors.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mutex>

#include "tests/simgpu/cuda/machine.h"
#include "tests/simgpu/settings.h"

namespace simgpu {
namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
};

// Registers the operators (tests/simgpu/aten). The first count of devices is early enough, and then CUDA's part of
// LibTorch is loaded, since it has asked.
void LoadOperators() {
  static std::once_flag once;
  std::call_once(once, [] {
    const char* const path = TextSetting("SIMCUDA_OPS");
    if (path == nullptr) return;
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      fprintf(stderr, "simulated device: %s\n", dlerror());
      abort();
    }
    reinterpret_cast<void (*)()>(dlsym(library, "simops_register"))();
  });
}

bool IsDevice(int index) { return index >= 0 && index < TheMachine().count; }

cudaError_t CheckMachine() {
  if (!OpenDriver()) return Remember(cudaErrorInitializationError);
  return Remember(TheMachine().count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

}  // namespace
}  // namespace simgpu

using simgpu::Enter;
using simgpu::IsDevice;
using simgpu::Remember;
using simgpu::TheMachine;

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  for (const simgpu::ErrorText& known : simgpu::kErrors) {
    if (known.error == error) return known.name;
  }
  return "cudaErrorUnknown";
}

const char* cudaGetErrorString(cudaError_t error) {
  for (const simgpu::ErrorText& known : simgpu::kErrors) {
    if (known.error == error) return known.text;
  }
  return "unknown error";
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  SIMCUDA_RETURN_IF_ERROR(simgpu::CheckMachine());
  *count = TheMachine().count;
  simgpu::LoadOperators();
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  SIMCUDA_RETURN_IF_ERROR(simgpu::CheckMachine());
  *device = simgpu::CurrentDevice();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  SIMCUDA_RETURN_IF_ERROR(simgpu::CheckMachine());
  if (!IsDevice(device)) return Remember(cudaErrorInvalidDevice);
  simgpu::SetCurrentDevice(device);
  return Remember(simgpu::DeviceAt(device).sticky);
}

// Numbers of an A100, but for the name and the few multiprocessors, which make LibTorch's launches small.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!IsDevice(device)) return Remember(cudaErrorInvalidDevice);
  cudaDeviceProp& p = *properties;
  memset(&p, 0, sizeof p);
  snprintf(p.name, sizeof p.name, "Simulated GPU");
  memset(&p.uuid, 0x40 + TheMachine().physical[device], sizeof p.uuid);
  p.totalGlobalMem = TheMachine().memory;
  p.sharedMemPerBlock = 48 << 10;
  p.sharedMemPerBlockOptin = 163 << 10;
  p.sharedMemPerMultiprocessor = 164 << 10;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = 32;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 0x7fffffff;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.totalConstMem = 65536;
  p.major = 8;
  p.textureAlignment = 512;
  p.multiProcessorCount = 4;
  p.concurrentKernels = p.unifiedAddressing = p.canMapHostMemory = 1;
  p.pciBusID = TheMachine().physical[device] + 1;
  p.l2CacheSize = 4 << 20;
  p.maxThreadsPerMultiProcessor = 2048;
  p.maxBlocksPerMultiProcessor = 32;
  p.streamPrioritiesSupported = p.cooperativeLaunch = 1;
  p.asyncEngineCount = 2;
  p.memoryBusWidth = 512;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!IsDevice(device)) return Remember(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 163 << 10; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMultiProcessorCount: *value = 4; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 8; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrPciBusId: *value = TheMachine().physical[device] + 1; break;
    case cudaDevAttrMaxGridDimX: *value = 0x7fffffff; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    default: *value = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  if (!IsDevice(device)) return Remember(cudaErrorInvalidDevice);
  snprintf(text, size, "0000:%02x:00.0", TheMachine().physical[device] + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  simgpu::SynchronizeDevice(simgpu::CurrentDevice());
  return Enter();  // the work may have broken the device
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }
}
