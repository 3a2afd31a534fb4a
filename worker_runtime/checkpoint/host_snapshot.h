#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_HOST_SNAPSHOT_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_HOST_SNAPSHOT_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <map>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker_runtime/safetensors/safetensors_header.h"

namespace ddprun {

// A copy of tensors in host memory, laid out as in a safetensors file. The memory is reused for the next copy.
//
// A copy from the CPU is complete when Copy returns. A copy from an accelerator runs on its own stream into pinned
// memory while the host continues. Work enqueued afterwards on the tensors' current stream (the next optimizer step)
// waits for it on the device, without any action of the trainer. Uses only LibTorch's device-independent streams and
// events.
//
// Copy and Wait may be called by different threads, one after the other. They throw c10::Error like LibTorch.
class HostSnapshot {
 public:
  HostSnapshot() = default;
  HostSnapshot(const HostSnapshot&) = delete;
  HostSnapshot& operator=(const HostSnapshot&) = delete;

  // `tensors` are those of `layout`, in its order. Overwrites the bytes of the previous copy.
  void Copy(const SafetensorsHeader& layout, absl::Span<const at::Tensor> tensors);

  // Blocks until the last copy is complete.
  void Wait();

  // The bytes of each tensor of the last layout. REQUIRES: Wait has returned.
  std::vector<absl::string_view> Bytes() const;

 private:
  // The stream for copies from one device.
  struct Lane {
    c10::Stream side;
    c10::Event done;
  };

  void Reserve(uint64_t bytes, bool pinned);
  Lane& LaneOf(c10::Device device);

  SafetensorsHeader layout_;
  at::Tensor memory_;
  bool pinned_ = false;
  std::map<c10::DeviceIndex, Lane> lanes_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_HOST_SNAPSHOT_H_
