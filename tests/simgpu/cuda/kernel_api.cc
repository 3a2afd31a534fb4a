// CUDA Runtime API, "Execution Control", and the functions that nvcc's code calls to register and launch kernels. No
// kernel runs: LibTorch's operators are replaced above their kernels (tests/simgpu/aten), and a launch that remains is
// an error which names the kernel.
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include <mutex>
#include <unordered_map>
#include <vector>

#include "tests/simgpu/cuda/machine.h"

namespace simgpu {
namespace {

struct Variable {
  size_t size;
  void* address[kMaxDevices] = {};
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<const void*, const char*> kernels;  // host function -> name
  std::unordered_map<const void*, Variable> variables;
};

Registry& TheRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

cudaError_t Launch(const void* function) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  std::lock_guard<std::mutex> lock(TheRegistry().mutex);
  const auto found = TheRegistry().kernels.find(function);
  fprintf(stderr, "simulated device: kernel %s has no CPU version\n",
          found == TheRegistry().kernels.end() ? "(not registered)" : found->second);
  return Remember(cudaErrorInvalidDeviceFunction);
}

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};

thread_local std::vector<Configuration> t_configurations;

}  // namespace
}  // namespace simgpu

using simgpu::Launch;
using simgpu::Remember;
using simgpu::TheRegistry;

// The names are those of CUDA.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {

void** __cudaRegisterFatBinary(void* binary) { return new void*(binary); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }

void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  std::lock_guard<std::mutex> lock(TheRegistry().mutex);
  TheRegistry().kernels[function] = name;
}

void __cudaRegisterVar(void**, char* variable, char*, const char*, int, size_t size, int, int) {
  std::lock_guard<std::mutex> lock(TheRegistry().mutex);
  TheRegistry().variables[variable].size = size;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  simgpu::t_configurations.push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (simgpu::t_configurations.empty()) return Remember(cudaErrorInvalidValue);
  const simgpu::Configuration last = simgpu::t_configurations.back();
  simgpu::t_configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, size_t, cudaStream_t) { return Launch(kernel); }

cudaError_t cudaLaunchKernel(const void* function, dim3, dim3, void**, size_t, cudaStream_t) {
  return Launch(function);
}

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3, dim3, void**, size_t, cudaStream_t) {
  return Launch(function);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void* function, void**) { return Launch(function); }

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->binaryVersion = attributes->ptxVersion = 80;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 2;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t, unsigned) {
  *blocks = 2;
  return cudaSuccess;
}

// Allocates the variable on the current device at the first call.
cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  std::lock_guard<std::mutex> lock(TheRegistry().mutex);
  const auto found = TheRegistry().variables.find(symbol);
  if (found == TheRegistry().variables.end()) return Remember(cudaErrorInvalidValue);
  void*& own = found->second.address[simgpu::CurrentDevice()];
  if (own == nullptr) SIMCUDA_RETURN_IF_ERROR(cudaMalloc(&own, found->second.size));
  *address = own;
  return cudaSuccess;
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t size, size_t offset, cudaMemcpyKind kind) {
  void* address = nullptr;
  SIMCUDA_RETURN_IF_ERROR(cudaGetSymbolAddress(&address, symbol));
  return cudaMemcpy(static_cast<char*>(address) + offset, from, size, kind);
}
}
// NOLINTEND(bugprone-reserved-identifier)
