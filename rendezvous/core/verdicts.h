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

// How a job ends (protocol 5). Pure functions.
namespace ddprun::rendezvous {

using worker_contract::kExitNoProgress;

// Judges a worker's failure. nullopt: restart, one restart is charged. Else the verdict that ends the job, because the
// failure is non-restartable, the restart limit is reached, or there is no progress.
std::optional<Verdict> Judge(const WorkerFailure& failure, RestartBudget* budget, SteadyTime now);

Verdict Succeeded(int32_t world_size);

// Every launcher exits with the code of `cause`, or 1 if no worker is to blame.
Verdict Failed(std::string reason, std::optional<WorkerFailure> cause);

// The verdict for the launcher of a kicked node.
Verdict Kicked(absl::string_view actor);

// No launcher is left to receive this verdict.
Verdict AllLeft(absl::string_view last, const WorkerFailure& loss);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_VERDICTS_H_
