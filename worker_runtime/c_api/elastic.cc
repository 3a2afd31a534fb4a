#include <ATen/ops/from_blob.h>
#include <torch/nn/module.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker_runtime/c_api/ddprun_worker.h"
#include "worker_runtime/c_api/worker_handle.h"
#include "worker_runtime/ddp/distributed_model.h"
#include "worker_runtime/process_group/process_group.h"
#include "worker_runtime/state/training_state.h"
#include "worker_runtime/stop_requested.h"
#include "worker_runtime/worker.h"

namespace ddprun::c_api {

// A model without parameters: the caller reduces its own arrays, and its state is memory.
class CallersModel final : public DistributedModel {
 public:
  void Add(at::Tensor tensor) { tensors_.push_back(std::move(tensor)); }

  absl::Status Connect(std::shared_ptr<ProcessGroup> group, const std::optional<BucketLayout>&, bool equal) override {
    if (equal) return absl::OkStatus();
    for (const at::Tensor& tensor : tensors_) DDPRUN_RETURN_IF_ERROR(group->Broadcast(tensor));
    return absl::OkStatus();
  }
  void Disconnect() override {}
  std::optional<BucketLayout> bucket_layout() const override { return std::nullopt; }
  void FinishBackward() override {}
  void zero_grad(bool) override {}
  torch::nn::Module& base_module() override { return module_; }

 private:
  torch::nn::Module module_;
  std::vector<at::Tensor> tensors_;
};

struct Elastic {
  CallersModel model;
  TrainingState state{model.base_module()};
  bool began = false;
};

namespace {

absl::StatusOr<Elastic*> ElasticOf(const ddprun_worker* worker) {
  if (worker == nullptr) return absl::InvalidArgumentError("worker is NULL");
  if (worker->elastic == nullptr) {
    return absl::FailedPreconditionError("this worker is not elastic: create it with ddprun_create_elastic");
  }
  return worker->elastic.get();
}

absl::Status CreateElastic(const char* backend, double timeout_seconds, ddprun_worker** worker) {
  static bool created = false;
  if (worker == nullptr) return absl::InvalidArgumentError("worker is NULL");
  DDPRUN_ASSIGN_OR_RETURN(const WorkerOptions options, Options(backend, timeout_seconds));
  DDPRUN_ASSIGN_OR_RETURN(WorkerEnv env, WorkerEnv::FromEnvironment());
  if (std::exchange(created, true)) {
    return absl::FailedPreconditionError("this process has created an elastic worker before; it can create only one");
  }
  IgnoreWarningSignals();
  auto made = std::make_unique<ddprun_worker>(std::move(env), options);
  made->elastic = std::make_shared<Elastic>();
  *worker = made.release();
  return absl::OkStatus();
}

absl::Status AddState(const ddprun_worker* worker, const char* name, void* data, int64_t bytes) {
  DDPRUN_ASSIGN_OR_RETURN(Elastic* const elastic, ElasticOf(worker));
  if (elastic->began) return absl::FailedPreconditionError("a state must be added before the first ddprun_next_round");
  if (name == nullptr || data == nullptr || bytes <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("name and data must not be NULL, and bytes=", bytes, " must be positive"));
  }
  const at::Tensor tensor = at::from_blob(data, {bytes}, at::TensorOptions(at::kByte));
  DDPRUN_RETURN_IF_ERROR(elastic->state.AddTensor(name, tensor));
  elastic->model.Add(tensor);
  return absl::OkStatus();
}

absl::Status NextRound(ddprun_worker* worker, int64_t* step) {
  DDPRUN_ASSIGN_OR_RETURN(Elastic* const elastic, ElasticOf(worker));
  if (step == nullptr) return absl::InvalidArgumentError("step is NULL");
  elastic->began = true;
  const auto no_checkpoint = []() -> absl::StatusOr<std::optional<int64_t>> { return std::nullopt; };
  const auto join = [&]() -> absl::Status {
    DDPRUN_RETURN_IF_ERROR(worker->worker.InitProcessGroup());
    DDPRUN_ASSIGN_OR_RETURN(*step, worker->worker.SyncState(elastic->state, elastic->model, no_checkpoint));
    return absl::OkStatus();
  };
  for (;;) {
    DDPRUN_RETURN_IF_ERROR(worker->worker.NextRendezvous(elastic->state, elastic->model));
    const absl::Status status = join();
    if (status.ok() || !worker->worker.Recoverable(status)) return status;
  }
}

}  // namespace
}  // namespace ddprun::c_api

using ddprun::c_api::Call;
using ddprun::c_api::Elastic;
using ddprun::c_api::ElasticOf;

int ddprun_create_elastic(const char* backend, double timeout_seconds, ddprun_worker** worker) {
  if (worker != nullptr) *worker = nullptr;
  return Call([&] { return ddprun::c_api::CreateElastic(backend, timeout_seconds, worker); });
}

int ddprun_add_state(ddprun_worker* worker, const char* name, void* data, int64_t bytes) {
  return Call([&] { return ddprun::c_api::AddState(worker, name, data, bytes); });
}

int ddprun_next_round(ddprun_worker* worker, int64_t* step) {
  return Call([&] { return ddprun::c_api::NextRound(worker, step); });
}

int ddprun_commit(ddprun_worker* worker, int64_t step) {
  return Call([&]() -> absl::Status {
    DDPRUN_ASSIGN_OR_RETURN(Elastic* const elastic, ElasticOf(worker));
    if (step < 0) return absl::InvalidArgumentError(absl::StrCat("step=", step, ": must not be negative"));
    return worker->worker.Commit(elastic->state, step);
  });
}

int ddprun_round_ended(const ddprun_worker* worker) {
  return worker != nullptr && worker->elastic != nullptr && worker->worker.suspended();
}

int ddprun_recoverable(ddprun_worker* worker, int code) {
  bool recoverable = false;
  const std::string text = ddprun_last_error();
  Call([&]() -> absl::Status {
    DDPRUN_RETURN_IF_ERROR(ElasticOf(worker).status());
    recoverable = worker->worker.Recoverable(absl::Status(static_cast<absl::StatusCode>(code), text));
    return absl::OkStatus();
  });
  return recoverable;
}
