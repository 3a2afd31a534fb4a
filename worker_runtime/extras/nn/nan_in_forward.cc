#include "worker_runtime/extras/nn/nan_in_forward.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isnan.h>
#include <ATen/record_function.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddprun {
namespace {

// State of a running NanInForward.
struct Watch {
  std::map<const void*, std::string> parameters;  // by memory address, which views share
  std::string last_parameter;
  std::string found;
};
thread_local Watch* watch = nullptr;

// State of an operator from its start to its end.
struct Started : at::ObserverContext {
  bool nan_before = false;
  std::string shapes;
};

std::vector<at::Tensor> TensorsOf(c10::ArrayRef<c10::IValue> values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) tensors.push_back(value.toTensor());
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
    }
  }
  return tensors;
}

bool HasNan(const at::Tensor& tensor) {
  if (!tensor.defined() || !at::isFloatingType(tensor.scalar_type()) || tensor.layout() != at::kStrided ||
      tensor.is_meta()) {
    return false;
  }
  return at::isnan(tensor).any().item<bool>();
}

std::string ShapeOf(const at::Tensor& tensor) { return absl::StrCat("[", absl::StrJoin(tensor.sizes(), ", "), "]"); }

// True for operators that return uninitialized memory, which LibTorch's deterministic mode fills with NaN.
bool ReturnsUninitialized(absl::string_view name) {
  return absl::StartsWith(name, "aten::empty") || absl::StartsWith(name, "aten::new_empty") ||
         absl::StartsWith(name, "aten::resize") || name == "aten::fill_";
}

std::unique_ptr<at::ObserverContext> OnStart(const at::RecordFunction& operation) {
  auto started = std::make_unique<Started>();
  if (watch == nullptr || !watch->found.empty()) return started;
  const at::DisableRecordFunctionGuard not_of_what_this_calls;
  const at::NoGradGuard no_grad;
  std::vector<std::string> shapes;
  for (const at::Tensor& tensor : TensorsOf(operation.inputs())) {
    if (!tensor.defined()) continue;
    started->nan_before |= HasNan(tensor);
    shapes.push_back(ShapeOf(tensor));
    if (!tensor.has_storage()) continue;
    const auto parameter = watch->parameters.find(tensor.storage().data());
    if (parameter != watch->parameters.end()) watch->last_parameter = parameter->second;
  }
  started->shapes = absl::StrJoin(shapes, ", ");
  return started;
}

void OnEnd(const at::RecordFunction& operation, at::ObserverContext* context) {
  const auto* const started = static_cast<const Started*>(context);
  if (watch == nullptr || !watch->found.empty() || started->nan_before || ReturnsUninitialized(operation.name()))
    return;
  const at::DisableRecordFunctionGuard not_of_what_this_calls;
  const at::NoGradGuard no_grad;
  for (const at::Tensor& tensor : TensorsOf(operation.outputs())) {
    if (!HasNan(tensor)) continue;
    watch->found = absl::StrCat(operation.name(), " gave NaN (shape ", ShapeOf(tensor),
                                ") for inputs without NaN (shapes ", started->shapes, ")",
                                watch->last_parameter.empty() ? std::string(", before any parameter was used")
                                                              : absl::StrCat("; the last parameter used before is \"",
                                                                             watch->last_parameter, "\""));
    return;
  }
}

}  // namespace

std::string NanInForward(const torch::nn::Module& module, absl::FunctionRef<void()> forward) {
  Watch mine;
  for (const auto& parameter : module.named_parameters()) {
    mine.parameters.emplace(parameter.value().storage().data(), parameter.key());
  }
  watch = &mine;
  const at::CallbackHandle handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback(OnStart, OnEnd).needsInputs(true).needsOutputs(true));
  const absl::Cleanup stop = [handle] {
    at::removeCallback(handle);
    watch = nullptr;
  };
  const at::NoGradGuard no_grad;
  forward();
  return !mine.found.empty() ? std::move(mine.found)
                             : "no operator of forward gave NaN for inputs without NaN: the batch or a parameter "
                               "contains NaN, or the failure did not recur (dropout?)";
}

}  // namespace ddprun
