#include "worker_runtime/ddp/comm_hook.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker_runtime/base/torch_try.h"

namespace ddprun {
namespace {

// The future of an asynchronous all-reduce holds a list of one tensor, that of other hooks the tensor itself.
at::Tensor ResultOf(c10::ivalue::Future& future) {
  const c10::IValue value = future.value();
  return value.isTensor() ? value.toTensor() : value.toTensorVector().front();
}

CommHook::Future Completed(at::Tensor tensor) {
  // The future of a GPU tensor must know the device, to order streams by it.
  std::vector<c10::Device> devices;
  if (!tensor.is_cpu()) devices.push_back(tensor.device());
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get(), std::move(devices));
  future->markCompleted(std::move(tensor));
  return future;
}

CommHook CompressHook(std::string name, c10::ScalarType dtype, CommHook inner) {
  return {.name = std::move(name),
          .run = [dtype, inner = std::move(inner)](const GradBucket& bucket, ProcessGroup& group) {
            return inner.run(bucket.WithBuffer(bucket.buffer().to(dtype)), group)
                ->then(
                    [buffer = bucket.buffer()](c10::ivalue::Future& reduced) {
                      buffer.copy_(ResultOf(reduced));
                      return c10::IValue(buffer);
                    },
                    c10::TensorType::get());
          }};
}

}  // namespace

GradBucket::GradBucket(const c10d::GradBucket& bucket) : bucket_(&bucket), buffer_(bucket.getBuffer()) {}

size_t GradBucket::index() const { return bucket_->getIndex(); }
bool GradBucket::is_last() const { return bucket_->isLast(); }
std::vector<at::Tensor> GradBucket::parameters() const { return bucket_->getParameters(); }

std::vector<at::Tensor> GradBucket::gradients() const {
  std::vector<at::Tensor> gradients = bucket_->getGradients();
  const at::Tensor& original = bucket_->getBuffer();
  if (buffer_.is_same(original)) return gradients;
  for (at::Tensor& gradient : gradients) {
    const int64_t offset = gradient.storage_offset() - original.storage_offset();
    gradient = buffer_.narrow(0, offset, gradient.numel()).view(gradient.sizes());
  }
  return gradients;
}

GradBucket GradBucket::WithBuffer(at::Tensor buffer) const {
  GradBucket other(*bucket_);
  other.buffer_ = std::move(buffer);
  return other;
}

CommHook AllReduceHook() {
  return {.name = "allreduce", .run = [](const GradBucket& bucket, ProcessGroup& group) {
            // Divides first, so that half does not overflow in the sum.
            std::vector<at::Tensor> tensors = {bucket.buffer().div_(group.size())};
            return group.c10d()->allreduce(tensors)->getFuture();
          }};
}

CommHook Fp16CompressHook(CommHook inner) {
  std::string name = absl::StrCat("fp16_compress(", inner.name, ")");
  return CompressHook(std::move(name), at::kHalf, std::move(inner));
}

CommHook Bf16CompressHook(CommHook inner) {
  std::string name = absl::StrCat("bf16_compress(", inner.name, ")");
  return CompressHook(std::move(name), at::kBFloat16, std::move(inner));
}

CommHook SynchronousHook(std::string name,
                         std::function<absl::Status(const GradBucket& bucket, ProcessGroup& group)> reduce) {
  return {.name = std::move(name), .run = [reduce = std::move(reduce)](const GradBucket& bucket, ProcessGroup& group) {
            ThrowIfError(reduce(bucket, group));
            return Completed(bucket.buffer());
          }};
}

}  // namespace ddprun
