#include "worker_runtime/base/non_restartable.h"

#include "absl/strings/cord.h"

namespace ddprun {
namespace {

constexpr char kPayload[] = "ddprun/non_restartable";

}  // namespace

absl::Status NonRestartable(absl::Status status) {
  status.SetPayload(kPayload, absl::Cord());
  return status;
}

bool IsNonRestartable(const absl::Status& status) { return status.GetPayload(kPayload).has_value(); }

}  // namespace ddprun
