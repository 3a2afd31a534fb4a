#include "worker_runtime/checkpoint/host_snapshot.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "worker_runtime/safetensors/tensor_bytes.h"

namespace ddprun {

void HostSnapshot::Reserve(uint64_t bytes, bool pinned) {
  const bool fits = memory_.defined() && static_cast<uint64_t>(memory_.numel()) >= bytes && pinned_ == pinned;
  if (fits) return;
  memory_ = at::Tensor();  // first, so that two of them never exist at once
  const uint64_t with_room = bytes + kSafetensorsDataAlignment;
  memory_ = at::empty({static_cast<int64_t>(with_room)}, at::TensorOptions().dtype(at::kByte).pinned_memory(pinned));
  const uint64_t beyond = reinterpret_cast<uintptr_t>(memory_.const_data_ptr()) % kSafetensorsDataAlignment;
  const uint64_t skipped = beyond == 0 ? 0 : kSafetensorsDataAlignment - beyond;
  memory_ = memory_.narrow(0, static_cast<int64_t>(skipped), static_cast<int64_t>(bytes));
  pinned_ = pinned;
  // Fewer page faults in the first copy. Only a hint.
  if (!pinned) ::madvise(memory_.mutable_data_ptr(), bytes, MADV_HUGEPAGE);
}

HostSnapshot::Lane& HostSnapshot::LaneOf(c10::Device device) {
  const auto found = lanes_.find(device.index());
  if (found != lanes_.end()) return found->second;
  const c10::impl::VirtualGuardImpl devices(device.type());
  Lane lane{devices.getStreamFromGlobalPool(device), c10::Event(device.type())};
  return lanes_.emplace(device.index(), std::move(lane)).first->second;
}

void HostSnapshot::Copy(const SafetensorsHeader& layout, absl::Span<const at::Tensor> tensors) {
  const at::NoGradGuard no_grad;
  const bool pinned = std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& t) { return !t.is_cpu(); });
  Reserve(layout.data_bytes(), pinned);
  layout_ = layout;
  char* const memory = static_cast<char*>(memory_.mutable_data_ptr());
  std::set<c10::DeviceIndex> used;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor source = tensors[i].detach().resolve_conj().resolve_neg();
    // Empty tensors have nothing to copy, and may lie at the end of the memory.
    if (source.numel() == 0) continue;
    at::Tensor target = TensorOnBytes(layout.tensors[i], memory + layout.tensors[i].begin);
    if (source.is_cpu()) {
      target.copy_(source);
      continue;
    }
    const c10::impl::VirtualGuardImpl devices(source.device().type());
    Lane& lane = LaneOf(source.device());
    if (used.insert(source.device().index()).second) {
      // The copies begin after the work that the trainer has enqueued on its stream so far.
      c10::Event ready(source.device().type());
      ready.record(devices.getStream(source.device()));
      ready.block(lane.side);
    }
    const c10::StreamGuard guard(lane.side);
    target.copy_(source.contiguous(), /*non_blocking=*/true);
  }
  for (const c10::DeviceIndex index : used) {
    Lane& lane = lanes_.at(index);
    const c10::impl::VirtualGuardImpl devices(lane.side.device_type());
    lane.done.record(lane.side);
    lane.done.block(devices.getStream(lane.side.device()));
  }
}

void HostSnapshot::Wait() {
  for (auto& [index, lane] : lanes_) {
    // Without the guard, waiting would create a context on the thread's current device, which takes memory.
    const c10::DeviceGuard guard(lane.side.device());
    lane.done.synchronize();
  }
}

std::vector<absl::string_view> HostSnapshot::Bytes() const {
  std::vector<absl::string_view> bytes;
  const char* const memory = static_cast<const char*>(memory_.const_data_ptr());
  for (const SafetensorsTensor& tensor : layout_.tensors) bytes.emplace_back(memory + tensor.begin, tensor.bytes());
  return bytes;
}

}  // namespace ddprun
