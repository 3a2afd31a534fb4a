#ifndef DDPRUN_WORKER_RUNTIME_OPTIM_ZERO_REDUNDANCY_OPTIMIZER_H_
#define DDPRUN_WORKER_RUNTIME_OPTIM_ZERO_REDUNDANCY_OPTIMIZER_H_

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// torch.distributed.optim.ZeroRedundancyOptimizer of Python: stage 1 of ZeRO (Rajbhandari et al., ZeRO: Memory
// Optimizations Toward Training Trillion Parameter Models, 2020). Each parameter belongs to one rank. A rank keeps the
// optimizer's state of its own parameters only, so of n ranks each needs about 1/n of that memory: for AdamW, 2/n
// instead of 2 times the parameters. step() steps this rank's parameters and then gets the others from their owners.
// The result has the bits of the same optimizer without it.
//
//   ddprun::ZeroRedundancyOptimizer optimizer(worker.group, ddprun::Parameters(model), [](auto groups) {
//     return std::make_unique<ddprun::AdamW>(groups, torch::optim::AdamWOptions(3e-4));
//   });
//
// Use it with DistributedDataParallel, which gives all ranks the same parameters and gradients.
//
// param_groups() has all parameters; options that are changed there, by a learning rate scheduler for example, count
// from the next step on, and must be changed on all ranks. state() has this rank's parameters only. save() and load()
// are not implemented; Checkpointer lets each rank write its part (docs/checkpoints.md).
//
// Parameters: dense, of any dtype and device that the group can broadcast, each once. Throws c10::Error, like LibTorch:
// construct and use it inside ProcessGroup::Try or RunWorker, which turn that into an error that names the rank.
// Threads: those of the group.
class ZeroRedundancyOptimizer : public torch::optim::Optimizer {
 public:
  // Makes the optimizer for the given groups, which hold this rank's parameters only. It has one group for each of the
  // caller's, with the caller's options if there are any; a group may be empty. Groups without options get its
  // defaults.
  using Factory = std::function<std::unique_ptr<torch::optim::Optimizer>(
      const std::vector<torch::optim::OptimizerParamGroup>& groups)>;

  // Collective. Parameters must have the same shapes and dtypes on all ranks, in the same order; the error, the same on
  // all ranks, names the first that has not. c10::ValueError: a parameter is given twice.
  ZeroRedundancyOptimizer(std::shared_ptr<ProcessGroup> group,
                          const std::vector<torch::optim::OptimizerParamGroup>& groups, const Factory& make_optimizer);
  ZeroRedundancyOptimizer(std::shared_ptr<ProcessGroup> group, std::vector<at::Tensor> parameters,
                          const Factory& make_optimizer);

  // Collective. One step of this rank's optimizer with the current gradients, then each owner broadcasts its
  // parameters. `closure` is passed to this rank's optimizer. After an exception, parameters may differ between ranks.
  at::Tensor step(LossClosure closure = nullptr) override;

  // The gradients of all parameters, as ddprun::AdamW::zero_grad.
  void zero_grad(bool set_to_none = true);

  // On all ranks. Earlier parameters keep their owners.
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  // The rank that keeps the state of a parameter of this optimizer. No communication. The same on all ranks, and the
  // same as Python's: in each group, parameters go from the largest to the smallest to the rank that has least so far.
  int OwnerOf(const at::Tensor& parameter) const;

  const std::shared_ptr<ProcessGroup>& group() const { return group_; }

 private:
  // Parameters of one owner, dtype and device that are sent together.
  struct Chunk {
    int owner = 0;
    std::vector<at::Tensor> parameters;
    size_t bytes = 0;
  };

  torch::optim::OptimizerParamGroup TakeOwn(const torch::optim::OptimizerParamGroup& group);
  void PlanChunks();
  void SendParameters();

  const std::shared_ptr<ProcessGroup> group_;
  std::unordered_map<const void*, int> owners_;
  std::vector<int64_t> elements_;  // that each rank owns
  std::vector<Chunk> chunks_;      // in the order in which all ranks send them
  std::unique_ptr<torch::optim::Optimizer> local_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_OPTIM_ZERO_REDUNDANCY_OPTIMIZER_H_
