#ifndef DDPRUN_TESTS_WORKER_RUNTIME_TESTING_RANKS_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_TESTING_RANKS_H_

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun::testing {

using RankBody = absl::FunctionRef<absl::Status(int rank, std::shared_ptr<ProcessGroup> group)>;

// Runs `body` as `n` ranks, each a thread of this process, which meet in a store in memory and talk over Gloo on the
// loopback interface. Returns the first error in time, with the rank in front. When one rank fails (or throws), the
// groups of the others are aborted, so that nobody waits for it; when all return OK, the groups are shut down in order.
// Expectations of GoogleTest may be used inside; fatal ones (ASSERT_) can't.
absl::Status RunRanks(int n, RankBody body);

// The same with other options; their timeout counts as given (default here: one minute).
absl::Status RunRanks(int n, const ProcessGroupOptions& options, RankBody body);

// Runs them and expects no error.
void ExpectRanksSucceed(int n, RankBody body);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_TESTING_RANKS_H_
