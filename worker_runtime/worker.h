#ifndef DDPRUN_WORKER_RUNTIME_WORKER_H_
#define DDPRUN_WORKER_RUNTIME_WORKER_H_

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "worker_runtime/env/worker_env.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// The argument of a training function.
struct Worker {
  WorkerEnv env;
  std::shared_ptr<ProcessGroup> group;
};

// The main function of a trainer in one call: reads the environment, creates the process group, runs `body`, and shuts
// the group down.
//
//   int main() {
//     ddprun::RunWorker({.timeout = absl::Minutes(5)}, [](ddprun::Worker& worker) -> absl::Status { ... });
//   }
//
// Does not return. Flushes the standard streams and exits without running LibTorch's static destructors, which take
// 80 ms. Exit code: 0 if `body` returned OK; 1 if it returned or threw an error, which is printed in one line and
// written to the launcher's error file, so that the failure summary on every node shows it; 78 if that error
// is NonRestartable (base/non_restartable.h), so that the launcher does not restart the job; 2 if the environment is
// invalid. A worker that failed only because a peer died waits half a second for the launcher to stop it, so that the
// launcher sees the peer's exit first. Sets the number of LibTorch's threads to OMP_NUM_THREADS if that is set.
[[noreturn]] void RunWorker(const ProcessGroupOptions& options, absl::FunctionRef<absl::Status(Worker&)> body);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_WORKER_H_
