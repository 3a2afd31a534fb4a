#ifndef DDPRUN_WORKER_RUNTIME_DDP_OUTPUT_SINK_H_
#define DDPRUN_WORKER_RUNTIME_DDP_OUTPUT_SINK_H_

#include <ATen/core/Tensor.h>

#include <memory>

#include "absl/types/span.h"

namespace ddprun {

struct DdpState;

// Puts a step between a module's outputs and what is computed from them: a backward pass goes through it whichever output
// the loss was computed from. It passes "no gradient" on for outputs that do not feed the loss, so that the reducer hears
// of their parameters; and in a static graph's first iteration it lets all reductions wait for the end of the pass.
// Outputs without a graph stay as they are. Copies the others. Throws as LibTorch.
void ApplyOutputSink(const std::shared_ptr<DdpState>& state, absl::Span<at::Tensor* const> outputs);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_OUTPUT_SINK_H_
