#ifndef DDPRUN_WORKER_RUNTIME_DDP_OUTPUT_SINK_H_
#define DDPRUN_WORKER_RUNTIME_DDP_OUTPUT_SINK_H_

#include <ATen/core/Tensor.h>

#include <memory>

#include "absl/types/span.h"

namespace ddprun {

struct DdpState;

// Both functions take the outputs of a forward whose backward will reduce gradients. Outputs without a graph are not
// changed. Both throw like LibTorch.

// For find_unused_parameters: inserts an autograd node behind the module's outputs. Backward passes through it
// whichever output the loss was computed from, and it propagates "no gradient" for the others, so that the reducer
// marks their parameters. Copies the outputs.
void ApplyOutputSink(absl::Span<at::Tensor* const> outputs);

// For the first iteration of a static graph: delays all reductions to the end of backward. Unlike in Python, outputs
// that do not contribute to the loss are not counted as used, which would fail in the second iteration.
void DelayReductionToEndOfBackward(const std::shared_ptr<DdpState>& state, absl::Span<at::Tensor* const> outputs);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_OUTPUT_SINK_H_
