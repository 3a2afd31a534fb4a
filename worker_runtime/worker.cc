#include "worker_runtime/worker.h"

#include <ATen/Parallel.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <iostream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "worker_contract/environment.h"
#include "worker_runtime/base/last_words.h"
#include "worker_runtime/base/torch_try.h"

namespace ddprun {
namespace {

constexpr int kFailed = 1;
constexpr int kBadEnvironment = 2;

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

absl::Status Run(const WorkerEnv& env, const ProcessGroupOptions& options,
                 absl::FunctionRef<absl::Status(Worker&)> body) {
  absl::StatusOr<std::shared_ptr<ProcessGroup>> group = ProcessGroup::Create(env, options);
  if (!group.ok()) return group.status();
  Worker worker{env, *std::move(group)};
  absl::Status returned;
  absl::Status status = TorchTry("", [&] {
    returned = body(worker);
    return absl::OkStatus();
  });
  // The body may have replaced its group after a failure, and then it is the new one that tells and ends.
  if (worker.group == nullptr) return status.ok() ? returned : status;
  status = status.ok() ? returned : worker.group->Explain("training", status);
  if (status.ok()) status = worker.group->Shutdown();
  if (status.ok()) return status;
  worker.group->Abort(status.message());
  worker.group->AwaitReaders();
  return status;
}

}  // namespace

void RunWorker(const ProcessGroupOptions& options, absl::FunctionRef<absl::Status(Worker&)> body) {
  // A reader of our output that goes away must not end a training.
  signal(SIGPIPE, SIG_IGN);
  absl::StatusOr<WorkerEnv> env = WorkerEnv::FromEnvironment();
  if (!env.ok()) {
    const char* const file = getenv(worker_contract::kErrorFile);
    const char* const rank = getenv(worker_contract::kRank);
    int number = 0;
    SayLastWords(rank != nullptr && absl::SimpleAtoi(rank, &number) ? number : 0, file == nullptr ? "" : file,
                 env.status());
    End(kBadEnvironment);
  }
  SetThreads();
  SayLastWordsOnTerminate(env->rank, env->error_file);
  const absl::Status status = Run(*env, options, body);
  if (!status.ok()) SayLastWords(env->rank, env->error_file, status);
  End(status.ok() ? 0 : kFailed);
}

}  // namespace ddprun
