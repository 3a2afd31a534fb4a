#ifndef DDPRUN_WORKER_RUNTIME_DDP_OUTPUT_SINK_H_
#define DDPRUN_WORKER_RUNTIME_DDP_OUTPUT_SINK_H_

#include <ATen/core/Tensor.h>

#include <memory>

#include "absl/types/span.h"

namespace ddprun {

struct DdpState;

// Both are for the outputs of a forward whose backward will reduce gradients; outputs without a graph are not touched.
// Both throw as LibTorch.

// For find_unused_parameters: puts a step between a module's outputs and what is computed from them. A backward pass goes
// through it whichever output the loss was computed from, and it passes "no gradient" on for the others, so that the
// reducer hears of their parameters. Copies the outputs.
void ApplyOutputSink(absl::Span<at::Tensor* const> outputs);

// For a static graph's first iteration: lets all reductions wait for the end of the backward pass. Unlike in Python,
// outputs that do not feed the loss are not mistaken for used ones, which would fail in the second iteration.
void DelayReductionToEndOfBackward(const std::shared_ptr<DdpState>& state, absl::Span<at::Tensor* const> outputs);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_OUTPUT_SINK_H_
