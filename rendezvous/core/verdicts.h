#ifndef DDPRUN_RENDEZVOUS_CORE_VERDICTS_H_
#define DDPRUN_RENDEZVOUS_CORE_VERDICTS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "base/steady_time.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/restart_budget.h"
#include "worker_contract/exit_codes.h"

// The verdicts with which a job ends (protocol 5). Pure functions.
namespace ddprun::rendezvous {

using worker_contract::kExitNoProgress;

// Decides what follows from a worker's failure (protocol 3.5). Returns nullopt if the job restarts, after charging one
// restart to `budget`. Otherwise returns the verdict that ends the job: the failure is non-restartable, the restart
// limit is reached, or a rank failed too often at the same step.
std::optional<Verdict> Judge(const WorkerFailure& failure, RestartBudget* budget, SteadyTime now);

Verdict Succeeded(int32_t world_size);

// Returns the verdict of a failed job. All launchers exit with the exit status of `cause`, or 1 without a cause.
Verdict Failed(std::string reason, std::optional<WorkerFailure> cause);

// Returns the verdict for the launcher of a kicked node.
Verdict Kicked(absl::string_view actor);

// Returns the verdict of a job whose last launcher left, for display: no launcher is left to receive it.
Verdict AllLeft(absl::string_view last, const WorkerFailure& loss);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_VERDICTS_H_
