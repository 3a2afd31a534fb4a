#include "worker_runtime/ddp/output_sink.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include <utility>
#include <vector>

#include "worker_runtime/ddp/ddp_state.h"

namespace ddprun {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct OutputSink : torch::autograd::Function<OutputSink> {
  static variable_list forward(AutogradContext* context, at::TensorList outputs) {
    context->set_materialize_grads(false);
    variable_list copies;
    for (const at::Tensor& output : outputs) copies.push_back(output.clone());
    return copies;
  }
  static variable_list backward(AutogradContext*, variable_list gradients) { return gradients; }
};

std::vector<at::Tensor*> WithGraph(absl::Span<at::Tensor* const> outputs) {
  std::vector<at::Tensor*> with_graph;
  for (at::Tensor* output : outputs) {
    if (output->defined() && output->grad_fn() != nullptr) with_graph.push_back(output);
  }
  return with_graph;
}

}  // namespace

void ApplyOutputSink(absl::Span<at::Tensor* const> outputs) {
  const std::vector<at::Tensor*> with_graph = WithGraph(outputs);
  if (with_graph.empty()) return;
  variable_list inputs;
  for (const at::Tensor* output : with_graph) inputs.push_back(*output);
  variable_list copies = OutputSink::apply(at::TensorList(inputs));
  for (size_t i = 0; i < copies.size(); ++i) *with_graph[i] = std::move(copies[i]);
}

void DelayReductionToEndOfBackward(const std::shared_ptr<DdpState>& state, absl::Span<at::Tensor* const> outputs) {
  // Weak, because a graph that outlives the backward pass must not keep the wrapper alive.
  const auto queue_once = [weak = std::weak_ptr<DdpState>(state)](const at::Tensor&) {
    const std::shared_ptr<DdpState> state = weak.lock();
    if (state == nullptr || state->delay_all_reduce_queued) return;
    state->delay_all_reduce_queued = true;
    torch::autograd::Engine::get_default_engine().queue_callback(
        [reducer = state->reducer] { reducer->delay_all_reduce(); });
  };
  for (at::Tensor* output : WithGraph(outputs)) output->register_hook(queue_once);
}

}  // namespace ddprun
