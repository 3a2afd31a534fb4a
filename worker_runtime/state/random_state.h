#ifndef DDPRUN_WORKER_RUNTIME_STATE_RANDOM_STATE_H_
#define DDPRUN_WORKER_RUNTIME_STATE_RANDOM_STATE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

#include "absl/types/span.h"
#include "worker_runtime/safetensors/tensor_bytes.h"

// LibTorch's default random number generators (dropout, randn, ...). Functions throw c10::Error like LibTorch.
namespace ddprun {

// The states of the CPU's generator and of those of `devices`, one after the other: uint8 [n].
at::Tensor GetRandomState(absl::Span<const c10::Device> devices);

// Size in bytes of the CPU's part, which comes first.
int64_t CpuRandomStateBytes();

// Inverse of GetRandomState. `state` may be shorter (devices without saved state keep theirs) or longer (padding).
void SetRandomState(const at::Tensor& state, absl::Span<const c10::Device> devices);

// The devices other than the CPU that hold `tensors`, each once, in order.
std::vector<c10::Device> AcceleratorsOf(const NamedTensors& tensors);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_STATE_RANDOM_STATE_H_
