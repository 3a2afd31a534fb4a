#ifndef DDPRUN_TESTS_SIMGPU_FEATURES_FEATURES_H_
#define DDPRUN_TESTS_SIMGPU_FEATURES_FEATURES_H_

#include <string>

#include "absl/status/status.h"
#include "worker_runtime/worker.h"

// Features of the worker runtime. Each function uses one and prints the numbers that result, which must be equal on
// every device and backend. Errors: a number is wrong by itself, or the feature failed.
namespace ddprun::testing {

absl::Status TrainAllWays(Worker& worker);  // DDP's options, hooks, AMP ...
absl::Status UseCollectives(Worker& worker);
absl::Status UseMetrics(Worker& worker);
absl::Status UseTrainingState(Worker& worker);
absl::Status UseCheckpoints(Worker& worker, const std::string& folder);

// Creates a group `times` times, trains in it, and ends it by Shutdown and Abort in turn. Errors: Internal if
// descriptors, threads, memory or streams of the device grow.
absl::Status ReForm(Worker& worker, int times);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SIMGPU_FEATURES_FEATURES_H_
