#include "worker_runtime/ddp/model_agreement.h"

#include <ATen/ops/full.h>

#include <string>

namespace ddprun {

absl::Status CheckAllRanksAgree(const ModelDescription& description, c10::Device device, ProcessGroup& group) {
  if (group.size() == 1) return absl::OkStatus();
  absl::StatusOr<std::string> text = group.BroadcastText(EncodeDescription(description), 0);
  if (!text.ok()) return text.status();
  absl::StatusOr<ModelDescription> of_rank0 = DecodeDescription(*text);
  if (!of_rank0.ok()) return of_rank0.status();
  const std::string difference = FirstDifference(*of_rank0, 0, description, group.rank());

  // The lowest rank that differs tells all, so that all give up together and with the same words.
  at::Tensor differing;
  absl::Status status = group.Try("comparing the model", [&] {
    differing =
        at::full({1}, difference.empty() ? group.size() : group.rank(), at::TensorOptions(at::kLong).device(device));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  if (status = group.AllReduce(differing, ReduceOp::kMin); !status.ok()) return status;
  const int lowest = static_cast<int>(differing.item<int64_t>());
  if (lowest == group.size()) return absl::OkStatus();
  text = group.BroadcastText(difference, lowest);
  return text.ok() ? absl::InvalidArgumentError(*text) : text.status();
}

}  // namespace ddprun
