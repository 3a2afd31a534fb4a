#include "worker_runtime/ddp/model_agreement.h"

#include <string>

#include "worker_runtime/process_group/agreement.h"

namespace ddprun {

absl::Status CheckAllRanksAgree(const ModelDescription& description, ProcessGroup& group) {
  if (group.size() == 1) return absl::OkStatus();
  absl::StatusOr<std::string> text = group.BroadcastText(EncodeDescription(description), 0);
  if (!text.ok()) return text.status();
  absl::StatusOr<ModelDescription> of_rank0 = DecodeDescription(*text);
  if (!of_rank0.ok()) return of_rank0.status();
  // All ranks return the difference found by the lowest rank that differs.
  const std::string difference = FirstDifference(*of_rank0, 0, description, group.rank());
  return OutcomeOfAll(&group, difference.empty() ? absl::OkStatus() : absl::InvalidArgumentError(difference));
}

}  // namespace ddprun
