// Functions that LibTorch is linked with and that are refused with cudaErrorNotSupported: graphs, memory shared between
// processes (IPC), memory pools (cudaMallocAsync), managed memory and libraries of kernels. The driver's functions,
// which LibTorch asks for by name, are refused as well, but for three that answer questions about devices.
#include <cuda_runtime_api.h>
#include <string.h>

#include "tests/simgpu/cuda/machine.h"

namespace simgpu {
namespace {

constexpr int kDriverInvalidDevice = 101;  // CUDA_ERROR_INVALID_DEVICE
constexpr int kDriverNotSupported = 801;   // CUDA_ERROR_NOT_SUPPORTED

int NotSupported() { return kDriverNotSupported; }

int GetErrorString(int, const char** text) {
  *text = "not supported by the simulated driver";
  return 0;
}

int GetDevice(int* device, int ordinal) {
  *device = ordinal;
  return ordinal < TheMachine().count ? 0 : kDriverInvalidDevice;
}

int GetDeviceAttribute(int* value, int, int) {
  *value = 0;
  return 0;
}

}  // namespace
}  // namespace simgpu

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *function = reinterpret_cast<void*>(simgpu::NotSupported);
  if (strcmp(symbol, "cuGetErrorString") == 0) *function = reinterpret_cast<void*>(simgpu::GetErrorString);
  if (strcmp(symbol, "cuDeviceGet") == 0) *function = reinterpret_cast<void*>(simgpu::GetDevice);
  if (strcmp(symbol, "cuDeviceGetAttribute") == 0) *function = reinterpret_cast<void*>(simgpu::GetDeviceAttribute);
  if (result != nullptr) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define NOT_SUPPORTED(name, ...) \
  cudaError_t name(__VA_ARGS__) { return simgpu::Remember(cudaErrorNotSupported); }

NOT_SUPPORTED(cudaIpcCloseMemHandle, void*)
NOT_SUPPORTED(cudaIpcGetEventHandle, cudaIpcEventHandle_t*, cudaEvent_t)
NOT_SUPPORTED(cudaIpcGetMemHandle, cudaIpcMemHandle_t*, void*)
NOT_SUPPORTED(cudaIpcOpenEventHandle, cudaEvent_t*, cudaIpcEventHandle_t)
NOT_SUPPORTED(cudaIpcOpenMemHandle, void**, cudaIpcMemHandle_t, unsigned)
NOT_SUPPORTED(cudaMallocAsync, void**, size_t, cudaStream_t)
NOT_SUPPORTED(cudaFreeAsync, void*, cudaStream_t)
NOT_SUPPORTED(cudaDeviceGetDefaultMemPool, cudaMemPool_t*, int)
NOT_SUPPORTED(cudaMemPoolGetAttribute, cudaMemPool_t, cudaMemPoolAttr, void*)
NOT_SUPPORTED(cudaMemPoolSetAccess, cudaMemPool_t, const cudaMemAccessDesc*, size_t)
NOT_SUPPORTED(cudaMemPoolSetAttribute, cudaMemPool_t, cudaMemPoolAttr, void*)
NOT_SUPPORTED(cudaMemPoolTrimTo, cudaMemPool_t, size_t)
NOT_SUPPORTED(cudaGraphDebugDotPrint, cudaGraph_t, const char*, unsigned)
NOT_SUPPORTED(cudaGraphDestroy, cudaGraph_t)
NOT_SUPPORTED(cudaGraphExecDestroy, cudaGraphExec_t)
NOT_SUPPORTED(cudaGraphGetNodes, cudaGraph_t, cudaGraphNode_t*, size_t*)
NOT_SUPPORTED(cudaGraphInstantiateWithFlags, cudaGraphExec_t*, cudaGraph_t, unsigned long long)
NOT_SUPPORTED(cudaGraphLaunch, cudaGraphExec_t, cudaStream_t)
NOT_SUPPORTED(cudaGraphNodeGetDependencies, cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*, size_t*)
NOT_SUPPORTED(cudaStreamBeginCapture, cudaStream_t, cudaStreamCaptureMode)
NOT_SUPPORTED(cudaStreamEndCapture, cudaStream_t, cudaGraph_t*)
NOT_SUPPORTED(cudaStreamBeginCaptureToGraph, cudaStream_t, cudaGraph_t, const cudaGraphNode_t*,
              const cudaGraphEdgeData*, size_t, cudaStreamCaptureMode)
NOT_SUPPORTED(cudaStreamUpdateCaptureDependencies, cudaStream_t, cudaGraphNode_t*, const cudaGraphEdgeData*, size_t,
              unsigned)
NOT_SUPPORTED(cudaGraphAddNode, cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, const cudaGraphEdgeData*, size_t,
              cudaGraphNodeParams*)
NOT_SUPPORTED(cudaGraphConditionalHandleCreate, cudaGraphConditionalHandle*, cudaGraph_t, unsigned, unsigned)
NOT_SUPPORTED(cudaGraphInstantiate, cudaGraphExec_t*, cudaGraph_t, unsigned long long)
NOT_SUPPORTED(cudaGraphRetainUserObject, cudaGraph_t, cudaUserObject_t, unsigned, unsigned)
NOT_SUPPORTED(cudaUserObjectCreate, cudaUserObject_t*, void*, cudaHostFn_t, unsigned, unsigned)
NOT_SUPPORTED(cudaUserObjectRelease, cudaUserObject_t, unsigned)
NOT_SUPPORTED(cudaDeviceGetGraphMemAttribute, int, cudaGraphMemAttributeType, void*)
NOT_SUPPORTED(cudaDeviceSetGraphMemAttribute, int, cudaGraphMemAttributeType, void*)
NOT_SUPPORTED(cudaMallocManaged, void**, size_t, unsigned)
NOT_SUPPORTED(cudaKernelSetAttributeForDevice, cudaKernel_t, cudaFuncAttribute, int, int)
NOT_SUPPORTED(cudaLibraryGetGlobal, void**, size_t*, cudaLibrary_t, const char*)
NOT_SUPPORTED(cudaLibraryGetKernel, cudaKernel_t*, cudaLibrary_t, const char*)
NOT_SUPPORTED(cudaLibraryGetKernelCount, unsigned*, cudaLibrary_t)
NOT_SUPPORTED(cudaLibraryGetManaged, void**, size_t*, cudaLibrary_t, const char*)
NOT_SUPPORTED(cudaLibraryGetUnifiedFunction, void**, cudaLibrary_t, const char*)
NOT_SUPPORTED(cudaLibraryLoadData, cudaLibrary_t*, const void*, cudaJitOption*, void**, unsigned, cudaLibraryOption*,
              void**, unsigned)
NOT_SUPPORTED(cudaLibraryLoadFromFile, cudaLibrary_t*, const char*, cudaJitOption*, void**, unsigned,
              cudaLibraryOption*, void**, unsigned)
NOT_SUPPORTED(cudaLibraryUnload, cudaLibrary_t)
}
