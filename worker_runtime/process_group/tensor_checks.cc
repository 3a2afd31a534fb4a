#include "worker_runtime/process_group/tensor_checks.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker_runtime/process_group/backend_choice.h"

namespace ddprun {

std::string ShapeOf(const at::Tensor& tensor) { return absl::StrCat("[", absl::StrJoin(tensor.sizes(), ", "), "]"); }

absl::Status CheckTensor(absl::string_view operation, const at::Tensor& tensor) {
  if (!tensor.defined()) return absl::InvalidArgumentError(absl::StrCat(operation, ": a tensor is undefined"));
  if (tensor.layout() == at::kStrided && tensor.is_contiguous()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(operation, ": a tensor is not contiguous; pass tensor.contiguous()"));
}

absl::Status CheckParts(absl::string_view operation, const at::Tensor& whole, const at::Tensor& part, int parts) {
  for (const at::Tensor& tensor : {whole, part}) {
    if (absl::Status status = CheckTensor(operation, tensor); !status.ok()) return status;
  }
  const bool fits = whole.dim() > 0 && part.dim() == whole.dim() && whole.size(0) == parts * part.size(0) &&
                    whole.sizes().slice(1) == part.sizes().slice(1) && whole.dtype() == part.dtype() &&
                    whole.device() == part.device();
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      operation, ": shapes ", ShapeOf(whole), " and ", ShapeOf(part), " do not match for ", parts,
      " ranks; the first dimension of one must be that many times the other's, with the same dtype and device"));
}

absl::Status CheckPeer(absl::string_view operation, const ProcessGroup& group, int peer) {
  if (peer >= 0 && peer < group.size() && peer != group.rank()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(operation, ": rank ", peer, " is not another rank of this group of size ", group.size()));
}

absl::Status CheckSendable(absl::string_view operation, const ProcessGroup& group, const at::Tensor& tensor) {
  if (absl::Status status = CheckTensor(operation, tensor); !status.ok()) return status;
  const absl::StatusOr<BackendChoice> choice = ParseBackendChoice(group.backend(), tensor.is_cuda());
  if (tensor.is_cpu() || !choice.ok() || !choice->gloo_for_cuda) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(operation, ": Gloo can't ", operation, " a tensor of ",
                                                 tensor.device().str(), "; pass tensor.cpu(), or use NCCL"));
}

absl::Status CheckOp(absl::string_view operation, const at::Tensor& tensor, ReduceOp op) {
  if (op != ReduceOp::kAverage || tensor.is_floating_point()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(operation, ": kAverage requires a floating-point tensor"));
}

}  // namespace ddprun
