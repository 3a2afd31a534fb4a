#include "tests/simgpu/cuda/machine.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "tests/simgpu/cuda/simcuda.h"
#include "tests/simgpu/settings.h"

namespace simgpu {
namespace {

thread_local cudaError_t t_last_error = cudaSuccess;
thread_local int t_device = 0;

[[noreturn]] void Die(const char* what) {
  perror(what);
  abort();
}

char* Map(int protection, int flags, int file) {
  void* const at = mmap(nullptr, kArena, protection, flags | MAP_NORESERVE, file, 0);
  if (at == MAP_FAILED) Die("simulated device: mmap");
  return static_cast<char*>(at);
}

}  // namespace

Machine::Machine() {
  count = static_cast<int>(std::min<long>(NumberSetting("SIMCUDA_DEVICES", 2), kMaxDevices));
  memory = static_cast<size_t>(NumberSetting("SIMCUDA_MEMORY_MB", 4096)) << 20;
  for (int i = 0; i < count; ++i) physical[i] = i;
  const char* const visible = getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return;
  // CUDA reads the list up to the first entry that is not a device.
  int seen = 0;
  for (const char* at = visible; *at != '\0';) {
    char* end;
    const long index = strtol(at, &end, 10);
    if (end == at || index < 0 || index >= count || seen == count) break;
    physical[seen++] = static_cast<int>(index);
    if (*end != ',') break;
    at = end + 1;
  }
  count = seen;
}

Machine& TheMachine() {
  static Machine* const machine = new Machine;
  return *machine;
}

Device& DeviceAt(int index) {
  Device& device = TheMachine().devices[index];
  std::lock_guard<std::mutex> lock(device.mutex);
  if (device.base != nullptr) return device;
  SpendCalibrated(kContextMs);
  const int file = memfd_create("simcuda", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, kArena) != 0) Die("simulated device: memfd_create");
  device.view = Map(PROT_READ | PROT_WRITE, MAP_SHARED, file);
  close(file);
  device.default_stream = new Stream(index, 0);
  device.streams.insert(device.default_stream);
  device.base = Map(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  return device;
}

int CurrentDevice() { return t_device; }
void SetCurrentDevice(int index) { t_device = index; }

int ArenaOf(const void* address) {
  const char* const at = static_cast<const char*>(address);
  for (int i = 0; i < TheMachine().count; ++i) {
    const char* const base = TheMachine().devices[i].base;
    if (base != nullptr && at >= base && at < base + kArena) return i;
  }
  return -1;
}

bool IsPinned(const void* address) {
  Machine& machine = TheMachine();
  std::lock_guard<std::mutex> lock(machine.mutex);
  const char* const at = static_cast<const char*>(address);
  auto found = machine.pinned.upper_bound(at);
  if (found == machine.pinned.begin()) return false;
  --found;
  return at < found->first + found->second;
}

Stream* StreamOf(cudaStream_t handle) {
  const bool is_default = reinterpret_cast<uintptr_t>(handle) <= reinterpret_cast<uintptr_t>(cudaStreamPerThread);
  return is_default ? DeviceAt(t_device).default_stream : reinterpret_cast<Stream*>(handle);
}

void SynchronizeDevice(int index) {
  Device& device = DeviceAt(index);
  std::vector<Stream*> streams;
  {
    std::lock_guard<std::mutex> lock(device.mutex);
    streams.assign(device.streams.begin(), device.streams.end());
  }
  for (Stream* const stream : streams) stream->Wait();
}

cudaError_t Remember(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) t_last_error = error;
  return error;
}

bool OpenDriver() {
  static std::once_flag once;
  static pid_t opened_by = 0;
  std::call_once(once, [] {
    opened_by = getpid();
    // Stays open, so that programs that look at open files find it.
    [[maybe_unused]] const int file = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
    SpendCalibrated(kStartMs);
  });
  return opened_by == getpid();
}

cudaError_t Enter() {
  if (!OpenDriver()) return Remember(cudaErrorInitializationError);
  if (TheMachine().count == 0) return Remember(cudaErrorNoDevice);
  return Remember(TheMachine().devices[t_device].sticky);
}

}  // namespace simgpu

using simgpu::ArenaOf;
using simgpu::Device;
using simgpu::TheMachine;

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t error = simgpu::t_last_error;
  simgpu::t_last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return simgpu::t_last_error; }

void* simcuda_view(const void* address) {
  const int device = ArenaOf(address);
  char* const at = const_cast<char*>(static_cast<const char*>(address));
  if (device < 0) return at;
  return TheMachine().devices[device].view + (at - TheMachine().devices[device].base);
}

int simcuda_device_of(const void* address) {
  const int index = ArenaOf(address);
  if (index < 0) return -1;
  Device& device = TheMachine().devices[index];
  const size_t offset = static_cast<const char*>(address) - device.base;
  std::lock_guard<std::mutex> lock(device.mutex);
  auto found = device.used.upper_bound(offset);
  if (found == device.used.begin()) return -1;
  --found;
  return offset < found->first + found->second ? index : -1;
}

int simcuda_physical(int device) { return TheMachine().physical[device]; }

int simcuda_device_of_stream(cudaStream_t stream) { return simgpu::StreamOf(stream)->device(); }

void simcuda_enqueue(cudaStream_t stream, void (*work)(void*), void* data) {
  simgpu::StreamOf(stream)->Enqueue([work, data] { work(data); });
}

void simcuda_set_sticky_error(int device, int error) {
  TheMachine().devices[device].sticky = static_cast<cudaError_t>(error);
}

long simcuda_used_bytes() {
  long bytes = 0;
  for (int i = 0; i < TheMachine().count; ++i) {
    Device& device = TheMachine().devices[i];
    std::lock_guard<std::mutex> lock(device.mutex);
    bytes += static_cast<long>(device.used_bytes);
  }
  return bytes;
}

long simcuda_stream_count() {
  long streams = 0;
  for (int i = 0; i < TheMachine().count; ++i) {
    Device& device = TheMachine().devices[i];
    std::lock_guard<std::mutex> lock(device.mutex);
    streams += static_cast<long>(device.streams.size());
  }
  return streams;
}
}
