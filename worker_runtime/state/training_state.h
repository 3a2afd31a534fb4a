#ifndef DDPRUN_WORKER_RUNTIME_STATE_TRAINING_STATE_H_
#define DDPRUN_WORKER_RUNTIME_STATE_TRAINING_STATE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/safetensors/safetensors_header.h"
#include "worker_runtime/safetensors/tensor_bytes.h"
#include "worker_runtime/state/module_state.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace torch::optim {
class LRScheduler;
class Optimizer;
}  // namespace torch::optim

namespace ddprun {

class DistributedSampler;
class BatchSampler;
class GradScaler;
class ProcessGroup;

// Tensors laid out as in a file. They are handles to the trainer's own tensors, not copies.
struct StatePart {
  SafetensorsHeader layout;
  std::vector<at::Tensor> tensors;  // one per tensor of `layout`, in its order
};

// A whole training state: the model under the names of Python's state_dict, and the rest.
struct StateParts {
  StatePart model;
  StatePart rest;
  std::vector<std::string> parameters;  // names, in the module's order; all other tensors of the model are buffers

  // Returns OK if all parameters and the optimizer's state are finite and no buffer has a NaN. (An infinite value in a
  // buffer may be intended, as in an attention mask.) An optimizer that is stored as an archive is not checked.
  // Errors: FailedPrecondition names the first parameter, in the module's order, that is not finite, and the number of
  // others.
  absl::Status CheckFinite() const;
};

// State that a training job needs to continue in another process: the module, its optimizer, and objects that the
// trainer adds. Each has a stable name, under which it is written to a checkpoint, sent to other ranks, and restored.
//
//   ddprun::TrainingState state(*model, &optimizer);
//   DDPRUN_RETURN_IF_ERROR(state.AddScheduler(scheduler));
//   DDPRUN_RETURN_IF_ERROR(state.AddSampler(sampler));
//   DDPRUN_RETURN_IF_ERROR(state.AddTensor("ema", ema));
//   DDPRUN_RETURN_IF_ERROR(state.AddValue("best_loss", &best_loss));
//   auto checkpointer = ddprun::Checkpointer::Create(worker.group(), state, {.folder = "checkpoints"});
//
// Added objects must outlive this one. All ranks must add the same names. Names must be unique.
// Threads: the training thread.
class TrainingState {
 public:
  // `module` is the one inside DistributedDataParallel, not the wrapper. `optimizer` may be of any kind; nullptr: none.
  // SGD, Adam and AdamW are stored by parameter name, readable from Python; others as the archive that their save()
  // writes.
  explicit TrainingState(torch::nn::Module& module, torch::optim::Optimizer* optimizer = nullptr);
  ~TrainingState();
  TrainingState(const TrainingState&) = delete;
  TrainingState& operator=(const TrainingState&) = delete;

  // Adds a tensor that is restored in place, for example an average of the weights or a table of counts. Any shape,
  // device and dtype that safetensors supports. Errors of all Add functions: InvalidArgument: the name is empty or
  // already used.
  absl::Status AddTensor(const std::string& name, at::Tensor tensor);
  absl::Status AddValue(const std::string& name, double* value);
  absl::Status AddValue(const std::string& name, int64_t* value);
  absl::Status AddValue(const std::string& name, bool* value);
  absl::Status AddValue(const std::string& name, std::string* value);  // UTF-8
  // Adds any other state, such as a custom schedule, as a text (UTF-8). `load` gets the text that `save` returned; its
  // error ends Resume.
  absl::Status AddText(const std::string& name, std::function<std::string()> save,
                       std::function<absl::Status(const std::string&)> load);
  // Adds the number of steps that the scheduler has made. The learning rates themselves are options of the optimizer.
  // Adding the same scheduler, scaler or BatchSampler again has no effect.
  absl::Status AddScheduler(torch::optim::LRScheduler& scheduler, const std::string& name = "scheduler");
  // Adds scale and growth tracker; the scaler's options are not stored. Saving it and Commit wait for the device.
  absl::Status AddScaler(GradScaler& scaler, const std::string& name = "scaler");
  // Adds epoch and position, summed over the ranks, so that the number of ranks may change. Restored in the middle of
  // an epoch without replaying; see DistributedSampler::set_epoch.
  absl::Status AddSampler(const DistributedSampler& sampler, const std::string& name = "sampler");
  // Uses the same format: a checkpoint of one kind of sampler can be continued by the other.
  absl::Status AddSampler(BatchSampler& sampler, const std::string& name = "sampler");

  // Marks the state between two training steps, to which Rollback returns. Both may throw c10::Error, like LibTorch
  // (out of memory): call them within ProcessGroup::Try or RunWorker.
  enum class Scope {
    // State that a step changes before the optimizer's step: buffers (BatchNorm), gradients (accumulated under
    // no_sync), random numbers, learning rates, and everything added. Cheap.
    kStep,
    // Like kStep, without a copy of the gradients, for a step that sets them to zero before it adds to them. A rollback
    // sets the gradients that existed to zero, and removes others.
    kStepFromZeroGradients,
    // Also parameters and the optimizer's state, at the cost of a copy of them.
    kEverything,
  };
  void Commit(Scope scope = Scope::kStep);

  // Returns to the last Commit, so that an interrupted step can be repeated with the same result.
  // Errors: FailedPrecondition: there was no Commit, or, with kStep, parameters have changed since (detected from a few
  // values of each): the optimizer's step had begun.
  absl::Status Rollback();

  // Collective: all ranks get the state of `root`, except for random numbers, which differ between ranks. With `take`
  // false this rank keeps its own state, because it is the same: the rank then still holds it if root is lost during
  // the transfer.
  // Errors: InvalidArgument: the state of a rank (named) has other names or shapes, and nothing was changed; those of
  // the process group.
  absl::Status Broadcast(ProcessGroup& group, int root, bool take = true);

  // Collective, for ranks that must hold the same state: compares checksums of its parts with rank 0's. Reads all of
  // the state once. Differences that are allowed (in buffers, and in state added by AddTensor, AddValue and AddText)
  // only cause a warning on stderr.
  // Errors: FailedPrecondition, the same on all ranks: names the parts that differ (parameters, the optimizer, a
  // scheduler, a scaler, a sampler) and the rank; those of the process group.
  absl::Status CheckSameOnAllRanks(ProcessGroup& group) const;

  // Returns the state, with additional metadata entries and tensors to be stored beside it.
  absl::StatusOr<StateParts> Parts(std::map<std::string, std::string> metadata = {}, NamedTensors extra = {}) const;

  torch::optim::Optimizer* optimizer() const { return optimizer_; }  // nullptr: none

  // Devices other than the CPU that hold the module.
  std::vector<c10::Device> Accelerators() const;
  // True if the module is on this device and no other accelerator.
  bool IsOn(const std::optional<c10::Device>& device) const;

 private:
  friend class StateLoader;
  struct Text {
    std::function<std::string()> save;
    std::function<absl::Status(const std::string&)> load;
    bool same_on_all_ranks = false;
  };
  struct Committed;

  absl::Status CheckName(const std::string& name) const;
  // Adds the text of `object`, which is the same on all ranks; does nothing if it was already added.
  absl::Status AddObject(const void* object, const std::string& name, Text text);

  torch::nn::Module& module_;
  torch::optim::Optimizer* const optimizer_;
  std::map<std::string, at::Tensor> tensors_;
  std::map<std::string, Text> texts_;
  std::set<const void*> objects_;         // objects whose state is in texts_
  std::unique_ptr<Committed> committed_;  // nullptr: there was no Commit
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_STATE_TRAINING_STATE_H_
