#include "worker_runtime/ddp/loss.h"

namespace ddprun {

double LossOfThisRank(const at::Tensor& loss) { return loss.item<double>(); }

absl::StatusOr<double> LossAveragedOverRanks(const at::Tensor& loss, ProcessGroup& group) {
  at::Tensor sum;
  absl::Status status = group.Try("averaging the loss", [&] {
    sum = loss.detach().to(at::kDouble).reshape({1});
    // Must not be the caller's memory, if the loss is a double already.
    if (sum.is_alias_of(loss)) sum = sum.clone();
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  if (status = group.AllReduce(sum); !status.ok()) return status;
  double mean = 0;
  // An earlier kernel failure on a GPU surfaces here, where the result is awaited.
  status = group.Try("averaging the loss", [&] {
    mean = sum.item<double>() / group.size();
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return mean;
}

}  // namespace ddprun
