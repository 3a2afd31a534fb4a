#ifndef DDPRUN_WORKER_RUNTIME_ELASTIC_ELASTIC_DDP_H_
#define DDPRUN_WORKER_RUNTIME_ELASTIC_ELASTIC_DDP_H_

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// The part of ElasticDdp that ElasticWorker uses, independent of the module's type.
class ElasticModel {
 public:
  virtual ~ElasticModel() = default;
  // Creates the DistributedDataParallel of a round: with `layout` if the ranks' states are equal already, else as at a
  // start.
  virtual absl::Status Build(const std::shared_ptr<ProcessGroup>& group, const std::optional<BucketLayout>& layout,
                             bool equal) = 0;
  // Destroys the round's DistributedDataParallel. Gradients that are bucket views stay valid.
  virtual void Drop() = 0;
  // Buckets of the current DistributedDataParallel, or of the last one; nullopt: there was none.
  virtual std::optional<BucketLayout> bucket_layout() const = 0;
  // DistributedDataParallel::FinishBackward.
  virtual void FinishBackward() = 0;
  virtual torch::nn::Module& base_module() = 0;

  // Sets a function that is called in each pass with gradients enabled: before the module's forward (`backward` false),
  // and after it, when backward follows. nullptr: none.
  void set_on_pass(std::function<void(bool backward)> on_pass) { on_pass_ = std::move(on_pass); }

 protected:
  void OnPass(bool backward) const {
    if (on_pass_ != nullptr && at::GradMode::is_enabled()) on_pass_(backward);
  }

 private:
  std::function<void(bool)> on_pass_;
};

// A DistributedDataParallel that stays valid while workers come and go: ElasticWorker::SyncState recreates it for each
// round's group, with the buckets of the previous round, so that sums are computed in the same order.
//
//   ddprun::ElasticDdp<NetImpl> ddp(net.ptr());
//   at::Tensor loss = Loss(ddp.forward(inputs), targets);
//   ddp.zero_grad();
//   loss.backward();
//
// forward and zero_grad throw c10::Error between two rounds. Threads: the training thread.
template <class M>
class ElasticDdp final : public ElasticModel {
 public:
  using Ddp = DistributedDataParallel<M>;

  // `prepare` is called for each round's DistributedDataParallel, for example to register a communication hook; its
  // error is returned by SyncState. DdpOptions::init_sync and initial_bucket_layout are set by this class.
  explicit ElasticDdp(std::shared_ptr<M> module, DdpOptions options = {},
                      std::function<absl::Status(Ddp&)> prepare = nullptr)
      : module_(std::move(module)), options_(std::move(options)), prepare_(std::move(prepare)) {}
  explicit ElasticDdp(const torch::nn::ModuleHolder<M>& module, DdpOptions options = {},
                      std::function<absl::Status(Ddp&)> prepare = nullptr)
      : ElasticDdp(module.ptr(), std::move(options), std::move(prepare)) {}
  ElasticDdp(const ElasticDdp&) = delete;
  ElasticDdp& operator=(const ElasticDdp&) = delete;

  // See DistributedDataParallel.
  template <class... Args>
  auto forward(Args&&... args) {
    OnPass(/*backward=*/false);
    auto outputs = ddp().forward(std::forward<Args>(args)...);
    OnPass(/*backward=*/true);
    return outputs;
  }
  template <class... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }
  typename Ddp::NoSync no_sync() { return ddp().no_sync(); }
  void zero_grad(bool set_to_none = true) { ddp().zero_grad(set_to_none); }
  const std::shared_ptr<M>& module() const { return module_; }

  // The current round's instance. Throws c10::Error between two rounds. Must not be kept beyond the round.
  Ddp& ddp() {
    TORCH_CHECK(ddp_ != nullptr, "ElasticDdp: no round has begun; call ElasticWorker::SyncState first");
    return *ddp_;
  }

  absl::Status Build(const std::shared_ptr<ProcessGroup>& group, const std::optional<BucketLayout>& layout,
                     bool equal) override {
    Drop();
    DdpOptions options = options_;
    options.init_sync = !equal;
    options.initial_bucket_layout = layout;
    if (layout.has_value()) layout_ = layout;
    absl::StatusOr<std::shared_ptr<Ddp>> made = Ddp::Create(module_, group, options);
    if (!made.ok()) return made.status();
    if (prepare_ != nullptr) {
      if (absl::Status status = prepare_(**made); !status.ok()) return status;
    }
    ddp_ = *std::move(made);
    return absl::OkStatus();
  }
  void Drop() override {
    layout_ = bucket_layout();
    ddp_ = nullptr;
  }
  std::optional<BucketLayout> bucket_layout() const override {
    return ddp_ == nullptr ? layout_ : ddp_->bucket_layout();
  }
  void FinishBackward() override { ddp().FinishBackward(); }
  torch::nn::Module& base_module() override { return *module_; }

 private:
  const std::shared_ptr<M> module_;
  const DdpOptions options_;
  const std::function<absl::Status(Ddp&)> prepare_;
  std::shared_ptr<Ddp> ddp_;            // nullptr between two rounds
  std::optional<BucketLayout> layout_;  // of the last instance
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_ELASTIC_ELASTIC_DDP_H_
