// The kernels of the simulated devices: each operator of LibTorch that has a CUDA kernel gets another one, which runs
// the CPU's kernel over the device's memory, as work on the current stream. All above the kernels stays CUDA's own:
// allocator, streams, events, device guards, autograd's streams, DDP's reducer, ProcessGroupNCCL.
//
// A result must exist before it is computed. Its shape comes from the operator's meta kernel, or else from a trial run
// of the CPU's kernel over zeros; the work itself follows on the stream. Operators that make the host wait on a GPU
// (the shape depends on data, or the result is a number) wait for the stream here as well.
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/copy_native.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <stdio.h>
#include <stdlib.h>
#include <torch/library.h>
#include <unistd.h>

#include <cmath>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simgpu/aten/arguments.h"
#include "tests/simgpu/cuda/simcuda.h"
#include "tests/simgpu/settings.h"

namespace simgpu {
namespace {

using c10::IValue;
using torch::jit::Stack;

// Calls the kernel that the arguments select. SIMOPS_MAX_GFLOP replaces larger matrix products by 0.1 s of sleep and
// zeros, for tests which only need slow work.
void Call(const c10::OperatorHandle& op, Stack& stack) {
  static const char* const limit = TextSetting("SIMOPS_MAX_GFLOP");
  static const double max_operations = limit != nullptr ? atof(limit) * 1e9 : INFINITY;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (op.operator_name().name == "aten::mm" && stack.size() == 2 && stack[0].toTensor().is_cpu()) {
    const at::Tensor a = stack[0].toTensor(), b = stack[1].toTensor();
    if (2.0 * static_cast<double>(a.numel() * b.size(1)) > max_operations) {
      usleep(100000);
      stack = {at::zeros({a.size(0), b.size(1)}, a.options())};
      return;
    }
  }
  op.callBoxed(stack);
}

// CUDA's kernels refuse tensors of several devices; single numbers and indices may be on the CPU.
void CheckDevices(const c10::OperatorHandle& op, const Stack& arguments) {
  if (op.operator_name().name.find("index") != std::string::npos) return;
  std::optional<c10::Device> first;
  for (const IValue& value : arguments) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor& tensor = value.toTensor();
    if (tensor.is_cpu() && tensor.dim() == 0) continue;
    TORCH_CHECK(!first || *first == tensor.device(),
                "Expected all tensors to be on the same device, but found at least two devices, ", *first, " and ",
                tensor.device(), "! (", c10::toString(op.operator_name()), ")");
    first = tensor.device();
  }
}

// The first matrix product of a process starts cuBLAS.
void StartBlas(const c10::OperatorHandle& op) {
  static const std::set<std::string> kProducts = {"aten::addmm", "aten::baddbmm", "aten::bmm", "aten::mm"};
  static std::once_flag once;
  if (kProducts.count(op.operator_name().name) == 0) return;
  std::call_once(once, [] { SpendCalibrated(kFirstMatmulMs); });
}

// One call of a replaced operator.
class Operation {
 public:
  Operation(const c10::OperatorHandle& op, Stack arguments)
      : op_(op),
        schema_(op.schema()),
        arguments_(std::move(arguments)),
        sources_(schema_.returns().size()),
        outputs_(schema_.returns().size()),
        views_(schema_.returns().size()) {
    for (size_t i = 0; i < sources_.size(); ++i) {
      sources_[i] = ArgumentOfResult(schema_, i);
      if (sources_[i] >= 0) {
        outputs_[i] = arguments_[sources_[i]];
      } else {
        has_new_results_ = true;
        const c10::TypeKind kind = schema_.returns()[i].type()->kind();
        if (kind != c10::TypeKind::TensorType && kind != c10::TypeKind::ListType) must_wait_ = true;
      }
    }
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (!schema_.arguments()[i].is_out()) continue;
      ForEachTensor(arguments_[i], [this](const at::Tensor& tensor) { resizes_ |= tensor.numel() == 0; });
    }
    must_wait_ |= resizes_ || op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output);
    // A trial run would draw random numbers too, before those of the work in progress.
    must_wait_ |= has_new_results_ && op.hasTag(at::Tag::nondeterministic_seeded);
  }

  std::vector<IValue> Run() {
    CheckDevices(op_, arguments_);
    StartBlas(op_);
    const c10::Device device = FindDevice();
    const c10::cuda::CUDAGuard guard(device);
    cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device.index()).stream();
    if (!must_wait_ && (!has_new_results_ || AllocateResults(device))) {
      RunOnStream(stream, device);
    } else {
      C10_CUDA_CHECK(cudaStreamSynchronize(stream));
      RunNow(device);
    }
    return std::move(outputs_);
  }

 private:
  c10::Device FindDevice() const {
    std::optional<c10::Device> found;
    c10::Device named(at::kCUDA, c10::cuda::current_device());
    for (const IValue& value : arguments_) {
      ForEachTensor(value, [&](const at::Tensor& tensor) {
        if (!found && tensor.is_cuda()) found = tensor.device();
      });
      if (value.isDevice() && value.toDevice().is_cuda() && value.toDevice().has_index()) named = value.toDevice();
    }
    return found.value_or(named);
  }

  // Allocates the new results; false if their shapes are not known before the work is done.
  bool AllocateResults(c10::Device device) {
    Stack trial;
    try {
      trial = ConvertAll(arguments_, LikeOnMeta, at::kMeta);
      Call(op_, trial);
    } catch (const c10::Error&) {
      try {
        trial = ConvertAll(arguments_, ZerosOnCpu, at::kCPU);
        Call(op_, trial);
      } catch (const c10::Error&) {
        return false;  // perhaps because of the zeros
      }
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (sources_[i] >= 0) continue;
      outputs_[i] = AllocateLike(trial[i], device);
      views_[i] = Convert(outputs_[i], ViewOnCpu, at::kCPU);
    }
    return true;
  }

  void RunOnStream(cudaStream_t stream, c10::Device device) {
    Enqueue(stream, [op = op_, work = ConvertAll(arguments_, ViewOnCpu, at::kCPU), views = views_,
                     index = device.index()]() mutable {
      try {
        const at::NoGradGuard no_grad;
        simcuda_point(op.operator_name().name.c_str());
        Call(op, work);
        for (size_t i = 0; i < views.size(); ++i) {
          if (!views[i].isNone()) CopyTensors(views[i], work[i]);
        }
      } catch (const std::exception& e) {
        // A kernel that fails breaks its device.
        fprintf(stderr, "simulated device: %s: %s\n", c10::toString(op.operator_name()).c_str(), e.what());
        simcuda_set_sticky_error(index, cudaErrorAssert);
      }
    });
  }

  void RunNow(c10::Device device) {
    Stack work = ConvertAll(arguments_, ViewOnCpu, at::kCPU);
    Call(op_, work);
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (sources_[i] >= 0) {
        if (resizes_ && outputs_[i].isTensor()) Resize(outputs_[i].toTensor(), work[i].toTensor());
      } else if (work[i].isTensor() || work[i].isTensorList()) {
        outputs_[i] = AllocateLike(work[i], device);
        CopyTensors(Convert(outputs_[i], ViewOnCpu, at::kCPU), work[i]);
      } else {
        outputs_[i] = work[i];
      }
    }
  }

  // An empty `out` gets the shape of the result. A result of the right shape is in place already.
  static void Resize(const at::Tensor& out, const at::Tensor& result) {
    if (out.sizes() == result.sizes()) return;
    out.resize_(result.sizes());
    ViewOnCpu(out).copy_(result);
  }

  const c10::OperatorHandle op_;
  const c10::FunctionSchema& schema_;
  const Stack arguments_;
  std::vector<int> sources_;     // the argument that each result is, or -1
  std::vector<IValue> outputs_;  // the results
  std::vector<IValue> views_;    // the new results as the device sees them
  bool has_new_results_ = false;
  bool resizes_ = false;
  bool must_wait_ = false;
};

void RunOnCpu(const c10::OperatorHandle& op, Stack* stack) {
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  std::vector<IValue> outputs = Operation(op, Stack(first, stack->end())).Run();
  stack->erase(first, stack->end());
  for (IValue& output : outputs) stack->push_back(std::move(output));
}

// Copies that cudaMemcpy can do stay LibTorch's own; those that need a kernel (strides, types) are done here.
at::Tensor& Copy(at::Tensor& self, const at::Tensor& from, bool non_blocking) {
  const bool is_plain =
      self.dtype() == from.dtype() && self.sizes() == from.sizes() && self.is_contiguous() && from.is_contiguous();
  if (self.device() != from.device() || is_plain) return at::native::copy_(self, from, non_blocking);
  const c10::cuda::CUDAGuard guard(self.device());
  Enqueue(c10::cuda::getCurrentCUDAStream(), [to = ViewOnCpu(self), view = ViewOnCpu(from)] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    to.copy_(view);
  });
  return self;
}

bool IsReplaced(const c10::OperatorHandle& op) {
  static const std::set<std::string> kKept = {
      "aten::_local_scalar_dense", "aten::copy_",     "aten::record_stream", "aten::resize_", "aten::empty",
      "aten::empty_strided",       "aten::is_pinned", "aten::_pin_memory"};
  const std::string& name = op.operator_name().name;
  if (!name.starts_with("aten::") || name.starts_with("aten::set_") || kKept.count(name) != 0) return false;
  if (name.find("cudnn") != std::string::npos || name.find("miopen") != std::string::npos) return false;
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) return false;
  for (const c10::Argument& result : op.schema().returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return false;  // a view
  }
  return true;
}

// LibTorch warns of each kernel that is replaced.
struct NoWarnings : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

}  // namespace
}  // namespace simgpu

extern "C" __attribute__((visibility("default"))) void simops_register() {
  simgpu::NoWarnings no_warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&no_warnings);
  auto& dispatcher = c10::Dispatcher::singleton();
  static auto* const registrations = new std::vector<c10::RegistrationHandleRAII>;
  for (const c10::OperatorName& name : dispatcher.getAllOpNamesForDispatchKey(c10::DispatchKey::CUDA)) {
    const auto op = dispatcher.findSchema(name);
    if (!op || !simgpu::IsReplaced(*op)) continue;
    registrations->push_back(dispatcher.registerImpl(name, c10::DispatchKey::CUDA,
                                                     c10::KernelFunction::makeFromBoxedFunction<&simgpu::RunOnCpu>(),
                                                     std::nullopt, nullptr, "simulated device"));
  }
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  library->impl("copy_", TORCH_FN(simgpu::Copy));
  // The CPU has no kernels of the names of cuDNN's and of the fused attentions, which are composed of others here.
  at::globalContext().setSDPUseFlash(false);
  at::globalContext().setSDPUseMemEfficient(false);
  at::globalContext().setSDPUseCuDNN(false);
  at::globalContext().setUserEnabledCuDNN(false);
}
