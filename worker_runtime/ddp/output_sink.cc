#include "worker_runtime/ddp/output_sink.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/custom_class.h>

#include <utility>

#include "worker_runtime/ddp/ddp_state.h"

namespace ddprun {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr char kState[] = "state";

// Weak: a graph that was kept must not keep the wrapper.
struct StateHolder : torch::CustomClassHolder {
  explicit StateHolder(std::weak_ptr<DdpState> weak) : state(std::move(weak)) {}
  std::weak_ptr<DdpState> state;
};

struct OutputSink : torch::autograd::Function<OutputSink> {
  static variable_list forward(AutogradContext* context, std::weak_ptr<DdpState> state, at::TensorList outputs) {
    context->set_materialize_grads(false);
    context->saved_data[kState] = c10::IValue::make_capsule(c10::make_intrusive<StateHolder>(std::move(state)));
    variable_list copies;
    for (const at::Tensor& output : outputs) copies.push_back(output.clone());
    return copies;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto holder = c10::static_intrusive_pointer_cast<StateHolder>(context->saved_data[kState].toCapsule());
    const std::shared_ptr<DdpState> state = holder->state.lock();
    if (state != nullptr && state->options.static_graph && !state->delay_all_reduce_queued) {
      state->delay_all_reduce_queued = true;
      torch::autograd::Engine::get_default_engine().queue_callback(
          [reducer = state->reducer] { reducer->delay_all_reduce(); });
    }
    variable_list result = {at::Tensor()};  // for the state
    for (at::Tensor& gradient : gradients) result.push_back(std::move(gradient));
    return result;
  }
};

}  // namespace

void ApplyOutputSink(const std::shared_ptr<DdpState>& state, absl::Span<at::Tensor* const> outputs) {
  std::vector<at::Tensor*> with_graph;
  variable_list inputs;
  for (at::Tensor* output : outputs) {
    if (!output->defined() || output->grad_fn() == nullptr) continue;
    with_graph.push_back(output);
    inputs.push_back(*output);
  }
  if (inputs.empty()) return;
  variable_list copies = OutputSink::apply(std::weak_ptr<DdpState>(state), at::TensorList(inputs));
  for (size_t i = 0; i < copies.size(); ++i) *with_graph[i] = std::move(copies[i]);
}

}  // namespace ddprun
