#ifndef DDPRUN_TESTS_SIMGPU_ATEN_ARGUMENTS_H_
#define DDPRUN_TESTS_SIMGPU_ATEN_ARGUMENTS_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <functional>

// Arguments and results of an operator that was called with CUDA tensors, for a call of its CPU or meta kernel.
namespace simgpu {

// Turns a CUDA tensor into the tensor that another kernel gets; other tensors stay as they are.
using ConvertTensor = at::Tensor (*)(const at::Tensor&);

at::Tensor ViewOnCpu(const at::Tensor& tensor);   // the same elements, where the device sees them
at::Tensor LikeOnMeta(const at::Tensor& tensor);  // the shape alone
at::Tensor ZerosOnCpu(const at::Tensor& tensor);

// Converts the tensors of a value, and replaces a CUDA device by `device` and a generator by the default one.
c10::IValue Convert(const c10::IValue& value, ConvertTensor convert, c10::Device device);
torch::jit::Stack ConvertAll(const torch::jit::Stack& arguments, ConvertTensor convert, c10::Device device);

// Calls `body` for each defined tensor of a value.
void ForEachTensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& body);

// New tensors on `device` with the shapes and strides of `like`, a tensor or a list of them.
c10::IValue AllocateLike(const c10::IValue& like, c10::Device device);

// Copies the tensors of `from` into those of `to`, which have equal shapes.
void CopyTensors(const c10::IValue& to, const c10::IValue& from);

// Index of the argument that a result is, for operators that work in place or have an `out`; -1 for a new tensor.
int ArgumentOfResult(const c10::FunctionSchema& schema, size_t result);

}  // namespace simgpu

#endif  // DDPRUN_TESTS_SIMGPU_ATEN_ARGUMENTS_H_
