#ifndef DDPRUN_WORKER_RUNTIME_WORKER_H_
#define DDPRUN_WORKER_RUNTIME_WORKER_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker_runtime/env/worker_env.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

struct WorkerOptions {
  // Device on which this worker computes, as in ChooseDevice (process_group/choose_device.h): "cpu", "cuda" (the GPU of
  // its local rank), "auto" (that GPU if the host has one), or a specific GPU as in "cuda:1". A GPU becomes the current
  // device of the thread that runs the body.
  std::string device = "cpu";

  // Passed to torch::manual_seed before the body runs; the same on all ranks, as in Python's scripts. For random
  // numbers that differ between ranks (dropout), seed with seed + rank once the model is made. Not set: each process
  // starts with a random seed of its own.
  std::optional<uint64_t> seed = std::nullopt;

  // As in ProcessGroupOptions.
  std::string backend = "";
  absl::Duration timeout = absl::Minutes(30);
  std::string interface = "";

  // The body forms its groups itself, one per round: `Worker::group` is nullptr when it begins. Set by RunElasticWorker
  // (elastic/elastic_worker.h).
  bool elastic = false;
};

// Sets the environment variables that LibTorch reads when it uses NCCL, unless the user has set them. RunWorker and
// RunElasticWorker call it.
// REQUIRES: the process has no other thread.
void SetEnvironment(const WorkerOptions& options);

// Options of the process group that follow from `options`.
ProcessGroupOptions GroupOptions(const WorkerOptions& options, const c10::Device& device);

// The argument of a training function.
struct Worker {
  WorkerEnv env;
  std::shared_ptr<ProcessGroup> group;
  c10::Device device = c10::Device(c10::DeviceType::CPU);  // for the module and the batches
};

// The main function of a trainer in one call: reads the environment, sets LibTorch's threads (OMP_NUM_THREADS, if that
// is set), device and seed, creates the process group, runs `body`, and shuts the group down.
//
//   int main() {
//     ddprun::RunWorker({.device = "auto", .seed = 1}, [](ddprun::Worker& worker) -> absl::Status { ... });
//   }
//
// Does not return. Flushes the standard streams and exits without running LibTorch's static destructors, which take
// 80 ms. Exit code: 0 if `body` returned OK; 1 if it returned or threw an error, which is printed in one line and
// written to the launcher's error file, so that the failure summary on every node shows it; 78 if that error
// is NonRestartable (base/non_restartable.h), so that the launcher does not restart the job; 2 if the environment is
// invalid. A worker that failed only because a peer died waits half a second for the launcher to stop it, so that the
// launcher sees the peer's exit first.
//
// With ddprun --preload, workers are forked at this call (docs/operations.md, "Preloading"): code in `main` before it
// runs once per node, without a rank.
[[noreturn]] void RunWorker(const WorkerOptions& options, absl::FunctionRef<absl::Status(Worker&)> body);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_WORKER_H_
