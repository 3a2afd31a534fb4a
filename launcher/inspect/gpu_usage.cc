#include "launcher/inspect/gpu_usage.h"

#include <dlfcn.h>

#include <algorithm>
#include <type_traits>
#include <vector>

namespace ddprun::launcher {
namespace {

// Types of nvml.h. Functions return 0 for success.
using Device = void*;
struct Utilization {
  unsigned int gpu, memory;  // percent
};
struct Process {
  unsigned int pid;
  unsigned long long memory_bytes;
  unsigned int gpu_instance, compute_instance;
};
constexpr unsigned long long kNotAvailable = ~0ULL;
constexpr unsigned int kMostProcesses = 256;

struct Nvml {
  int (*count)(unsigned int* devices) = nullptr;
  int (*device)(unsigned int index, Device* device) = nullptr;
  int (*utilization)(Device device, Utilization* utilization) = nullptr;
  int (*processes)(Device device, unsigned int* count, Process* processes) = nullptr;
  bool usable = false;
};

// The library stays open: it has threads and state of its own.
Nvml Load() {
  Nvml nvml;
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nvml;
  const auto find = [library](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
    return *function != nullptr;
  };
  int (*init)() = nullptr;
  nvml.usable = find("nvmlInit_v2", &init) && find("nvmlDeviceGetCount_v2", &nvml.count) &&
                find("nvmlDeviceGetHandleByIndex_v2", &nvml.device) &&
                find("nvmlDeviceGetUtilizationRates", &nvml.utilization) &&
                find("nvmlDeviceGetComputeRunningProcesses_v3", &nvml.processes) && init() == 0;
  return nvml;
}

}  // namespace

std::map<pid_t, GpuUse> ReadGpuUse() {
  static const Nvml nvml = Load();
  std::map<pid_t, GpuUse> uses;
  unsigned int devices = 0;
  if (!nvml.usable || nvml.count(&devices) != 0) return uses;
  for (unsigned int i = 0; i < devices; ++i) {
    Device device = nullptr;
    Utilization utilization = {};
    std::vector<Process> processes(kMostProcesses);
    unsigned int count = kMostProcesses;
    if (nvml.device(i, &device) != 0 || nvml.processes(device, &count, processes.data()) != 0) continue;
    const bool known = nvml.utilization(device, &utilization) == 0;
    processes.resize(std::min(count, kMostProcesses));
    for (const Process& process : processes) {
      GpuUse& use = uses[static_cast<pid_t>(process.pid)];
      if (known) use.busy = std::max(use.busy.value_or(0), utilization.gpu / 100.0);
      if (process.memory_bytes != kNotAvailable) use.memory_bytes += static_cast<int64_t>(process.memory_bytes);
    }
  }
  return uses;
}

}  // namespace ddprun::launcher
