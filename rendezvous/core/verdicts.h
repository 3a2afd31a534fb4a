#ifndef DDPRUN_RENDEZVOUS_CORE_VERDICTS_H_
#define DDPRUN_RENDEZVOUS_CORE_VERDICTS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/restart_budget.h"

// How a job ends (protocol 5). Pure functions.
namespace ddprun::rendezvous {

// Judges a worker's failure: nullopt, and one restart is charged; or the verdict that ends the job, because restarting
// is of no use or no restart is left.
std::optional<Verdict> Judge(const WorkerFailure& failure, RestartBudget* budget);

Verdict Succeeded(int32_t world_size);

// Every launcher ends with the code of `cause`, or 1 where there is no worker to blame.
Verdict Failed(std::string reason, std::optional<WorkerFailure> cause);

// Nobody is left to be told this.
Verdict AllLeft(absl::string_view last, const WorkerFailure& loss);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_VERDICTS_H_
