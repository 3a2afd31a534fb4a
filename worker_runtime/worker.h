#ifndef DDPRUN_WORKER_RUNTIME_WORKER_H_
#define DDPRUN_WORKER_RUNTIME_WORKER_H_

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "worker_runtime/env/worker_env.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// What a training function is given.
struct Worker {
  WorkerEnv env;
  std::shared_ptr<ProcessGroup> group;
};

// A trainer's main in one call: reads the environment, makes the process group, runs `body`, and ends the group in
// order.
//
//   int main() {
//     ddprun::RunWorker({.timeout = absl::Minutes(5)}, [](ddprun::Worker& worker) -> absl::Status { ... });
//   }
//
// Does not return: flushes the standard streams and ends the process without running LibTorch's static destructors,
// which take 80 ms. Exit code 0 if `body` returned OK; 1 if it returned or threw an error, which is then printed in one
// line and written to the launcher's error file, so that every node's failure summary shows it; 2 if the environment is
// bad. A worker that only failed because another one is gone waits half a second to be stopped by the launcher, so that
// the other one's end is seen first. Sets the number of LibTorch's threads to OMP_NUM_THREADS where that is set.
[[noreturn]] void RunWorker(const ProcessGroupOptions& options, absl::FunctionRef<absl::Status(Worker&)> body);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_WORKER_H_
