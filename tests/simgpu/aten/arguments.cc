#include "tests/simgpu/aten/arguments.h"

#include <ATen/Functions.h>

#include <optional>
#include <vector>

#include "tests/simgpu/cuda/simcuda.h"

namespace simgpu {
namespace {

using c10::IValue;

at::TensorOptions OptionsOn(const at::Tensor& tensor, c10::Device device) {
  return tensor.options().device(device).requires_grad(false);
}

bool IsOnDevice(const at::Tensor& tensor) { return tensor.defined() && tensor.is_cuda(); }

at::Tensor EmptyLike(const at::Tensor& tensor, c10::Device device) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), OptionsOn(tensor, device));
}

// A number that was wrapped in a tensor takes part in type promotion in another way than a tensor does.
at::Tensor WrappedLike(const at::Tensor& from, at::Tensor to) {
  if (from.unsafeGetTensorImpl()->is_wrapped_number()) to.unsafeGetTensorImpl()->set_wrapped_number(true);
  return to;
}

}  // namespace

at::Tensor ViewOnCpu(const at::Tensor& tensor) {
  if (!IsOnDevice(tensor)) return tensor;
  if (tensor.numel() == 0) return EmptyLike(tensor, at::kCPU);
  void* const view = simcuda_view(tensor.const_data_ptr());
  return WrappedLike(tensor, at::from_blob(view, tensor.sizes(), tensor.strides(), OptionsOn(tensor, at::kCPU)));
}

at::Tensor LikeOnMeta(const at::Tensor& tensor) {
  return IsOnDevice(tensor) ? WrappedLike(tensor, EmptyLike(tensor, at::kMeta)) : tensor;
}

at::Tensor ZerosOnCpu(const at::Tensor& tensor) {
  return IsOnDevice(tensor) ? WrappedLike(tensor, EmptyLike(tensor, at::kCPU).zero_()) : tensor;
}

IValue Convert(const IValue& value, ConvertTensor convert, c10::Device device) {
  if (value.isTensor()) return convert(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(convert(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor.has_value() ? std::optional<at::Tensor>(convert(*tensor)) : std::nullopt);
    }
    return list;
  }
  if (value.isDevice() && value.toDevice().is_cuda()) return device;
  if (value.isGenerator()) return IValue();
  return value;
}

torch::jit::Stack ConvertAll(const torch::jit::Stack& arguments, ConvertTensor convert, c10::Device device) {
  torch::jit::Stack converted;
  for (const IValue& value : arguments) converted.push_back(Convert(value, convert, device));
  return converted;
}

void ForEachTensor(const IValue& value, const std::function<void(const at::Tensor&)>& body) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) body(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) body(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      if (tensor.has_value() && tensor->defined()) body(*tensor);
    }
  }
}

IValue AllocateLike(const IValue& like, c10::Device device) {
  const auto allocate = [&](const at::Tensor& tensor) { return tensor.defined() ? EmptyLike(tensor, device) : tensor; };
  if (like.isTensor()) return allocate(like.toTensor());
  c10::List<at::Tensor> list;
  for (const at::Tensor& tensor : like.toTensorVector()) list.push_back(allocate(tensor));
  return list;
}

void CopyTensors(const IValue& to, const IValue& from) {
  std::vector<at::Tensor> targets, sources;
  ForEachTensor(to, [&](const at::Tensor& tensor) { targets.push_back(tensor); });
  ForEachTensor(from, [&](const at::Tensor& tensor) { sources.push_back(tensor); });
  for (size_t i = 0; i < targets.size() && i < sources.size(); ++i) {
    // The CPU's kernels leave some results out, such as the saved mean of a BatchNorm in evaluation.
    if (sources[i].numel() == 0 && sources[i].dim() == 1) continue;
    TORCH_CHECK(targets[i].sizes() == sources[i].sizes(), "shape ", sources[i].sizes(), " instead of ",
                targets[i].sizes());
    targets[i].copy_(sources[i]);
  }
}

int ArgumentOfResult(const c10::FunctionSchema& schema, size_t result) {
  const auto* const alias = schema.returns()[result].alias_info();
  if (alias == nullptr) return -1;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* const other = schema.arguments()[i].alias_info();
    if (other != nullptr && other->isWrite() && other->beforeSets() == alias->beforeSets()) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace simgpu
