#ifndef DDPRUN_WORKER_RUNTIME_C_API_WORKER_HANDLE_H_
#define DDPRUN_WORKER_RUNTIME_C_API_WORKER_HANDLE_H_

#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/process_group/process_group.h"
#include "worker_runtime/worker.h"

namespace ddprun::c_api {
struct Elastic;  // elastic.cc
}

// The handle of the C functions, in C++.
struct ddprun_worker {
  ddprun_worker(ddprun::WorkerEnv env, const ddprun::WorkerOptions& options) : worker(std::move(env), options) {}

  ddprun::Worker worker;  // without a group after ddprun_shutdown, and between two rounds
  // nullptr: not an elastic worker. Shared only so that its type may be incomplete.
  std::shared_ptr<ddprun::c_api::Elastic> elastic;
};

// Parts that the files of this folder share.
namespace ddprun::c_api {

// Runs the body of a C function: no exception leaves it, and its error becomes this thread's ddprun_last_error. Returns
// the code.
int Call(absl::FunctionRef<absl::Status()> body);

// Options of a worker on the host. Errors: InvalidArgument: the backend or the timeout.
absl::StatusOr<WorkerOptions> Options(const char* backend, double timeout_seconds);

// The group of `worker`. Errors: InvalidArgument: `worker` is NULL; FailedPrecondition: it has none.
absl::StatusOr<std::shared_ptr<ProcessGroup>> Group(const ddprun_worker* worker);

}  // namespace ddprun::c_api

#endif  // DDPRUN_WORKER_RUNTIME_C_API_WORKER_HANDLE_H_
