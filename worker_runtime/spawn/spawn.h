#ifndef DDPRUN_WORKER_RUNTIME_SPAWN_SPAWN_H_
#define DDPRUN_WORKER_RUNTIME_SPAWN_SPAWN_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker_runtime/process_group/process_group.h"
#include "worker_runtime/worker.h"

namespace ddprun {

struct SpawnOptions {
  ProcessGroupOptions process_group = {};

  // After a failure the other workers get SIGTERM, and SIGKILL if they have not ended this long after it.
  absl::Duration grace = absl::Seconds(10);
};

// Runs `body` in `nprocs` worker processes on this machine, without a launcher, as torch.multiprocessing.spawn does,
// and returns when all have ended.
//
//   int main() {
//     absl::Status status = ddprun::Spawn(2, {}, [](ddprun::Worker& worker) -> absl::Status { ... });
//     if (!status.ok()) std::cerr << status.message() << "\n";
//     return status.ok() ? 0 : 1;
//   }
//
// A worker is this program, executed again with the same arguments (LibTorch does not survive a bare fork): its main
// runs from the start and must come to the same call, which there does not return but runs `body` and ends the process
// as RunWorker does. So what stands before the call is done by every worker too, what stands after it by this process
// only; earlier calls of Spawn are passed over in a worker. Workers have what RunWorker asks for in their environment,
// and OMP_NUM_THREADS=1 unless it is set or nprocs is 1. They read nothing from standard input.
//
// This process hosts their store, on a port of the loopback interface that it holds from the start. If it is killed,
// the kernel kills the workers; what is typed at the terminal (Ctrl-C) reaches them as it reaches this process.
//
// Errors:
//   Aborted             a worker failed: which one, and its error, exit code or signal. The others were stopped. Among
//                       several the first counts, which is the cause of the others' lost connections
//   InvalidArgument     nprocs is less than 1
//   FailedPrecondition  this process is a worker itself (RANK is set), another thread is in Spawn, or SIGCHLD is
//                       ignored, so that nobody could learn how a worker ended
//   Unavailable         a worker could not be started, or the store could not listen
// Threads: call it from a thread that lives on until it returns; one call at a time.
absl::Status Spawn(int nprocs, const SpawnOptions& options, absl::FunctionRef<absl::Status(Worker&)> body);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_SPAWN_SPAWN_H_
