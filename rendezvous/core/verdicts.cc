#include "rendezvous/core/verdicts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/command.h"
#include "rendezvous/core/phrases.h"

namespace ddprun::rendezvous {

std::optional<Verdict> Judge(const WorkerFailure& failure, RestartBudget* budget, SteadyTime now) {
  if (!failure.restartable()) return Failed(DescribeGivingUp(failure, budget->max(), budget->window()), failure);
  switch (budget->Charge(failure, now)) {
    case RestartBudget::Answer::kRestart: return std::nullopt;
    case RestartBudget::Answer::kSpent: break;
    case RestartBudget::Answer::kNoProgress:
      Verdict verdict = Failed(DescribeNoProgress(failure, budget->failures_at_step()), failure);
      verdict.set_exit_code(kExitNoProgress);
      return verdict;
  }
  return Failed(DescribeGivingUp(failure, budget->max(), budget->window()), failure);
}

Verdict Succeeded(int32_t world_size) {
  const std::string who = world_size == 1 ? "the only worker" : absl::StrCat("all ", world_size, " workers");
  return NewVerdict(true, absl::StrCat(who, " succeeded"), std::nullopt, 0);
}

Verdict Failed(std::string reason, std::optional<WorkerFailure> cause) {
  const int32_t status = cause ? ExitStatus(*cause) : 1;
  return NewVerdict(false, std::move(reason), std::move(cause), status != 0 ? status : 1);
}

Verdict Kicked(absl::string_view actor) {
  Verdict verdict = Failed(absl::StrCat("kicked by ", actor), std::nullopt);
  verdict.set_exit_code(kExitStopped);
  return verdict;
}

Verdict AllLeft(absl::string_view last, const WorkerFailure& loss) {
  return NewVerdict(false, absl::StrCat("all launchers left; last: ", last), loss, 1);
}

}  // namespace ddprun::rendezvous
