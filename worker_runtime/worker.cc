#include "worker_runtime/worker.h"

#include <ATen/Parallel.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "worker_contract/environment.h"
#include "worker_runtime/base/torch_try.h"

namespace ddprun {
namespace {

[[noreturn]] void End(int code) {
  fflush(nullptr);
  _exit(code);
}

}  // namespace

void RunWorker(const ProcessGroupOptions& options, absl::FunctionRef<absl::Status(Worker&)> body) {
  absl::StatusOr<WorkerEnv> env = WorkerEnv::FromEnvironment();
  if (!env.ok()) {
    fprintf(stderr, "%s\n", std::string(env.status().message()).c_str());
    End(2);
  }
  int threads = 0;
  const char* const omp = getenv(worker_contract::kOmpNumThreads);
  if (omp != nullptr && absl::SimpleAtoi(omp, &threads) && threads > 0) at::set_num_threads(threads);
  absl::StatusOr<std::shared_ptr<ProcessGroup>> group = ProcessGroup::Create(*env, options);
  absl::Status status = group.status();
  if (status.ok()) {
    Worker worker{*env, *group};
    status = worker.group->Try("training", [&] { return body(worker); });
    if (status.ok()) status = worker.group->Shutdown();
  }
  if (!status.ok()) fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  End(status.ok() ? 0 : 1);
}

}  // namespace ddprun
