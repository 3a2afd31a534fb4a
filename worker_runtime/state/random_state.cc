#include "worker_runtime/state/random_state.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/core/Generator.h>

#include <algorithm>
#include <mutex>

namespace ddprun {
namespace {

at::Tensor StateOf(c10::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

// Sets a generator's state from the bytes at `offset`; returns the offset of the next state.
int64_t SetStateOf(c10::Device device, const at::Tensor& state, int64_t offset) {
  const int64_t bytes = StateOf(device).numel();
  if (offset + bytes > state.numel()) return offset;
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state.slice(0, offset, offset + bytes).clone());
  return offset + bytes;
}

}  // namespace

at::Tensor GetRandomState(absl::Span<const c10::Device> devices) {
  std::vector<at::Tensor> states = {StateOf(c10::DeviceType::CPU)};
  for (const c10::Device device : devices) states.push_back(StateOf(device));
  return at::cat(states);
}

int64_t CpuRandomStateBytes() { return StateOf(c10::DeviceType::CPU).numel(); }

void SetRandomState(const at::Tensor& state, absl::Span<const c10::Device> devices) {
  int64_t offset = SetStateOf(c10::DeviceType::CPU, state, 0);
  for (const c10::Device device : devices) offset = SetStateOf(device, state, offset);
}

std::vector<c10::Device> AcceleratorsOf(const NamedTensors& tensors) {
  std::vector<c10::Device> devices;
  for (const auto& [name, tensor] : tensors) {
    const c10::Device device = tensor.device();
    const bool seen = std::find(devices.begin(), devices.end(), device) != devices.end();
    if (!device.is_cpu() && !device.is_meta() && !seen) devices.push_back(device);
  }
  std::sort(devices.begin(), devices.end(), [](c10::Device a, c10::Device b) { return a.index() < b.index(); });
  return devices;
}

}  // namespace ddprun
