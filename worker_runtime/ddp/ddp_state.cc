#include "worker_runtime/ddp/ddp_state.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <torch/csrc/distributed/c10d/comm.hpp>

namespace ddprun {
namespace {

constexpr size_t kBroadcastBytes = 250 * 1024 * 1024;

}  // namespace

void BroadcastBuffers(DdpState& state, int root) {
  at::NoGradGuard no_grad;
  c10d::broadcast_coalesced(state.group->c10d(), CollectBuffers(*state.module), kBroadcastBytes, root);
}

void BroadcastModule(DdpState& state, int root) {
  at::NoGradGuard no_grad;
  const std::vector<at::Tensor> tensors = CollectState(*state.module, state.options.broadcast_buffers);
  c10d::broadcast_coalesced(state.group->c10d(), tensors, kBroadcastBytes, root);
}

}  // namespace ddprun
