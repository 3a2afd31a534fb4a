#ifndef DDPRUN_WORKER_RUNTIME_DDP_DISTRIBUTED_MODEL_H_
#define DDPRUN_WORKER_RUNTIME_DDP_DISTRIBUTED_MODEL_H_

#include <ATen/core/grad_mode.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "worker_runtime/ddp/ddp_options.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace ddprun {

class ProcessGroup;

// A model that is connected to one process group after the other while workers come and go: the part of
// DistributedDataParallel that does not depend on the module's type. Threads: the training thread.
class DistributedModel {
 public:
  virtual ~DistributedModel() = default;

  // Connects to a group, after Disconnect from the one before. `equal`: the ranks' states are equal already; if not,
  // they get rank 0's. `layout`: buckets to use. Collective. Errors: those of DistributedDataParallel::Create.
  virtual absl::Status Connect(std::shared_ptr<ProcessGroup> group, const std::optional<BucketLayout>& layout,
                               bool equal) = 0;
  // Ends the connection. Gradients that are bucket views stay valid.
  virtual void Disconnect() = 0;
  // Buckets of the current connection, or of the last one; nullopt: there was none.
  virtual std::optional<BucketLayout> bucket_layout() const = 0;
  // Ends a step's communication; throws like LibTorch (DistributedDataParallel::FinishBackward).
  virtual void FinishBackward() = 0;
  // Zeroes the gradients.
  virtual void zero_grad(bool set_to_none = true) = 0;
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

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_DISTRIBUTED_MODEL_H_
