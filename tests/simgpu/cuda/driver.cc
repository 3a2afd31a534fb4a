// The simulated driver (libcuda.so.1): the functions of the CUDA Driver API that LibTorch names, through
// libcaffe2_nvrtc.so, and the driver's device files for programs that look for them with access(). Loading and
// launching kernels that were compiled at run time (NVRTC) is refused.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tests/simgpu/settings.h"

namespace {

constexpr char kDeviceFiles[] = "/dev/nvidia";

bool IsDevice(long index) { return index >= 0 && index < simgpu::NumberSetting("SIMCUDA_DEVICES", 2); }

bool IsDeviceFile(const char* path) {
  constexpr size_t kPrefix = sizeof kDeviceFiles - 1;
  if (path == nullptr || strncmp(path, kDeviceFiles, kPrefix) != 0) return false;
  const char* const rest = path + kPrefix;
  return strcmp(rest, "ctl") == 0 ? IsDevice(0) : *rest >= '0' && *rest <= '9' && IsDevice(atol(rest));
}

}  // namespace

extern "C" {

int access(const char* path, int mode) noexcept {
  static const auto next = reinterpret_cast<int (*)(const char*, int)>(dlsym(RTLD_NEXT, "access"));
  return IsDeviceFile(path) ? 0 : next(path, mode);
}

int cuGetErrorString(int, const char** text) {
  *text = "not supported by the simulated driver";
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return IsDevice(ordinal) ? 0 : 101;  // CUDA_ERROR_INVALID_DEVICE
}

int cuDeviceGetAttribute(int* value, int, int) {
  *value = 0;
  return 0;
}

// One context for all devices: nothing looks into it.
int cuCtxGetCurrent(void** context) {
  static char the_context;
  *context = &the_context;
  return 0;
}

// All primary contexts are active: PyTorch asks before it touches another device.
int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return 0;
}

int cuDevicePrimaryCtxRetain(void** context, int) { return cuCtxGetCurrent(context); }

int cuCtxSetCurrent(void*) { return 0; }

// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define NOT_SUPPORTED(name) \
  int name() { return 801; }  // CUDA_ERROR_NOT_SUPPORTED

NOT_SUPPORTED(cuFuncGetAttribute)
NOT_SUPPORTED(cuFuncSetAttribute)
NOT_SUPPORTED(cuFuncSetCacheConfig)
NOT_SUPPORTED(cuLaunchCooperativeKernel)
NOT_SUPPORTED(cuLaunchKernel)
NOT_SUPPORTED(cuLinkAddData_v2)
NOT_SUPPORTED(cuLinkComplete)
NOT_SUPPORTED(cuLinkCreate_v2)
NOT_SUPPORTED(cuModuleGetFunction)
NOT_SUPPORTED(cuModuleLoad)
NOT_SUPPORTED(cuModuleLoadData)
NOT_SUPPORTED(cuModuleLoadDataEx)
NOT_SUPPORTED(cuModuleUnload)
NOT_SUPPORTED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
NOT_SUPPORTED(cuPointerGetAttribute)
NOT_SUPPORTED(cuTensorMapEncodeTiled)
}
