#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <iostream>
#include <mutex>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "worker_contract/environment.h"
#include "worker_contract/exit_codes.h"
#include "worker_runtime/base/last_words.h"
#include "worker_runtime/base/non_restartable.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/preload/wait_to_be_forked.h"
#include "worker_runtime/process_group/choose_device.h"
#include "worker_runtime/process_group/nccl_plugin/nccl_policy.h"
#include "worker_runtime/stop_requested.h"
#include "worker_runtime/worker.h"

namespace ddprun {
namespace {

constexpr absl::Duration kDelayAfterPeerFailure = absl::Milliseconds(500);

[[noreturn]] void End(int code) {
  for (std::ostream* stream : {&std::cout, &std::cerr, &std::clog}) stream->flush();
  fflush(nullptr);
  _exit(code);
}

void SetThreads() {
  const char* const text = getenv(worker_contract::kOmpNumThreads);
  int threads = 0;
  if (text != nullptr && absl::SimpleAtoi(text, &threads) && threads > 0) at::set_num_threads(threads);
}

// Initialized before main, when the generator still has its initial random seed.
const uint64_t seed_at_start = at::detail::getDefaultCPUGenerator().current_seed();

// Gives this process a random seed of its own. Workers that are forked from one process (--preload) have a copy of its
// generator. A generator that main has seeded keeps its seed, as it would without --preload.
void SeedAfterFork() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  if (generator.current_seed() == seed_at_start) generator.seed();
}

absl::Status Seed(std::optional<uint64_t> seed) {
  if (!seed.has_value()) {
    SeedAfterFork();
    return absl::OkStatus();
  }
  return TorchTry("torch::manual_seed", [&] {
    at::manual_seed(*seed);
    return absl::OkStatus();
  });
}

absl::Status Run(Worker& worker, absl::FunctionRef<absl::Status(Worker&)> body) {
  absl::Status returned;
  absl::Status status = TorchTry("", [&] {
    returned = body(worker);
    return absl::OkStatus();
  });
  if (!worker.has_group()) return status.ok() ? returned : status;
  status = status.ok() ? returned : worker.group()->Explain("training", status);
  return status.ok() ? worker.group()->Shutdown() : status;
}

// Reports to the launcher before the group is aborted, so that the other ranks' consequential errors arrive later.
void ReportFailure(const WorkerEnv& env, const std::shared_ptr<ProcessGroup>& group, const absl::Status& status) {
  ReportWorkerError(env.rank, env.error_file, status);
  if (group != nullptr) {
    group->Abort(status.message());
    group->AwaitReaders();
  }
  // The rank that caused the error ends at the same time. The launcher should see that exit first; it then stops this
  // worker.
  if (absl::IsUnavailable(status)) poll(nullptr, 0, absl::ToInt64Milliseconds(kDelayAfterPeerFailure));
}

}  // namespace

void RunWorker(const WorkerOptions& options, absl::FunctionRef<absl::Status(Worker&)> body) {
  WaitToBeForked();
  // Now, when the process has no other thread that reads the environment.
  if (HostHasGpu()) SetNcclDefaults();
  IgnoreWarningSignals();
  // Writing to a pipe whose reader has exited must not end the training.
  signal(SIGPIPE, SIG_IGN);
  absl::StatusOr<WorkerEnv> env = WorkerEnv::FromEnvironment();
  if (!env.ok()) {
    const char* const file = getenv(worker_contract::kErrorFile);
    const char* const rank = getenv(worker_contract::kRank);
    int number = 0;
    ReportWorkerError(rank != nullptr && absl::SimpleAtoi(rank, &number) ? number : 0, file == nullptr ? "" : file,
                      env.status());
    End(worker_contract::kExitUsage);
  }
  SetThreads();
  InstallCrashReporter(env->rank);
  HoldLogOfTorch();
  const absl::StatusOr<c10::Device> device = ChooseDevice(*env, options.device);
  // After ChooseDevice: seeding looks for CUDA, and LibTorch looks once.
  absl::Status status = device.ok() ? Seed(options.seed) : device.status();
  // A device that is missing at the first start is missing at the next, too; later it may have failed, and another node
  // can replace this one.
  if (!device.ok() && env->restart_count == 0 && env->round <= 1) status = NonRestartable(status);
  std::optional<Worker> worker;
  if (status.ok()) status = Run(worker.emplace(*env, options, *device), body);
  if (!status.ok())
    ReportFailure(worker ? worker->env() : *env, worker && worker->has_group() ? worker->group() : nullptr, status);
  End(status.ok() ? 0 : IsNonRestartable(status) ? worker_contract::kExitNonRestartable : worker_contract::kExitFailed);
}

}  // namespace ddprun
