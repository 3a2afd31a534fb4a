#ifndef DDPRUN_WORKER_RUNTIME_SPAWN_SPAWN_H_
#define DDPRUN_WORKER_RUNTIME_SPAWN_SPAWN_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker_runtime/worker.h"

namespace ddprun {

struct SpawnOptions {
  WorkerOptions worker = {};

  // After a failure the other workers get SIGTERM, and SIGKILL if they are still running after this time.
  absl::Duration grace = absl::Seconds(10);
};

// Runs `body` in `nprocs` worker processes on this machine, without a launcher, like torch.multiprocessing.spawn, and
// returns when all have exited.
//
//   int main() {
//     absl::Status status = ddprun::Spawn(2, {}, [](ddprun::Worker& worker) -> absl::Status { ... });
//     if (!status.ok()) std::cerr << status.message() << "\n";
//     return status.ok() ? 0 : 1;
//   }
//
// A worker is this program, executed again with the same arguments (LibTorch does not support a fork without exec). Its
// main runs from the start and must reach the same call of Spawn, which in a worker does not return but runs `body` and
// exits like RunWorker. So code before the call runs in every worker too, code after it only in this process. In a
// worker, earlier calls of Spawn are skipped. Workers get the environment that RunWorker needs, and OMP_NUM_THREADS=1
// unless it is set or nprocs is 1. Their standard input is empty.
//
// This process hosts the workers' store, on a port of the loopback interface that is bound before they start. If this
// process is killed, the kernel kills the workers. Signals from the terminal (Ctrl-C) reach the workers and this
// process.
//
// Errors:
//   Aborted             a worker failed; the message has its index and its error, exit code or signal. The others were
//                       stopped. Of several failures the first is reported, which caused the others' lost connections
//   InvalidArgument     nprocs is less than 1
//   FailedPrecondition  this process is itself a worker (RANK is set), another thread is in Spawn, or SIGCHLD is
//                       ignored, so that exit codes of workers would be lost
//   Unavailable         a worker could not be started, or the store could not listen
// Threads: one call at a time. The calling thread must not end before the call returns.
absl::Status Spawn(int nprocs, const SpawnOptions& options, absl::FunctionRef<absl::Status(Worker&)> body);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_SPAWN_SPAWN_H_
