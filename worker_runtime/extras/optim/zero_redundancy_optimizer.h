#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_OPTIM_ZERO_REDUNDANCY_OPTIMIZER_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_OPTIM_ZERO_REDUNDANCY_OPTIMIZER_H_

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// Python's torch.distributed.optim.ZeroRedundancyOptimizer: stage 1 of ZeRO (Rajbhandari et al., ZeRO: Memory
// Optimizations Toward Training Trillion Parameter Models, 2020). Each parameter belongs to one rank. A rank keeps only
// the optimizer state of its own parameters, so each of n ranks needs about 1/n of that memory: for AdamW, 2/n instead
// of 2 times the parameters. step() steps this rank's parameters and then receives the others from their owners. The
// result has the same bits as the wrapped optimizer alone.
//
//   ddprun::ZeroRedundancyOptimizer optimizer(worker.group(), ddprun::Parameters(model), [](auto groups) {
//     return std::make_unique<ddprun::AdamW>(groups, torch::optim::AdamWOptions(3e-4));
//   });
//
// Use it with DistributedDataParallel, which gives all ranks the same parameters and gradients.
//
// param_groups() has all parameters; options that are changed there, for example by a learning rate scheduler, apply
// from the next step on, and must be changed on all ranks. state() has this rank's parameters only. save() and load()
// are not implemented; Checkpointer lets each rank write its part (docs/checkpoints.md).
//
// Parameters must be dense, of any dtype and device that the group can broadcast, each given once. Throws c10::Error,
// like LibTorch: construct and use it inside ProcessGroup::Try or RunWorker, which turn that into an error that names
// the rank.
// Threads: same rules as ProcessGroup.
class ZeroRedundancyOptimizer : public torch::optim::Optimizer {
 public:
  // Creates the optimizer for `groups`, which hold only this rank's parameters. There is one group for each of the
  // caller's, with the caller's options if there are any; a group may be empty. Groups without options get the new
  // optimizer's defaults.
  using Factory = std::function<std::unique_ptr<torch::optim::Optimizer>(
      const std::vector<torch::optim::OptimizerParamGroup>& groups)>;

  // Collective. Parameters must have the same shapes and dtypes on all ranks, in the same order; the error, the same on
  // all ranks, names the first that does not. Throws c10::ValueError if a parameter is given twice.
  ZeroRedundancyOptimizer(std::shared_ptr<ProcessGroup> group,
                          const std::vector<torch::optim::OptimizerParamGroup>& groups, const Factory& make_optimizer);
  ZeroRedundancyOptimizer(std::shared_ptr<ProcessGroup> group, std::vector<at::Tensor> parameters,
                          const Factory& make_optimizer);

  // Collective. Takes one step of this rank's optimizer with the current gradients, then each owner broadcasts its
  // parameters. `closure` is passed to this rank's optimizer. After an exception, parameters may differ between ranks.
  at::Tensor step(LossClosure closure = nullptr) override;

  // Zeroes the gradients of all parameters, like ddprun::AdamW::zero_grad.
  void zero_grad(bool set_to_none = true);

  // Must be called on all ranks. Earlier parameters keep their owners.
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  // Returns the rank that keeps the state of a parameter of this optimizer. Does not communicate. All ranks agree, as
  // does Python: in each group, parameters are assigned from the largest to the smallest, each to the rank that has the
  // fewest elements so far.
  int OwnerOf(const at::Tensor& parameter) const;

  const std::shared_ptr<ProcessGroup>& group() const { return group_; }

 private:
  // Parameters of one owner, dtype and device that are sent together.
  struct Chunk {
    int owner = 0;
    std::vector<at::Tensor> parameters;
    size_t bytes = 0;
  };

  torch::optim::OptimizerParamGroup AssignOwners(const torch::optim::OptimizerParamGroup& group);
  void PlanChunks();
  void SendParameters();

  const std::shared_ptr<ProcessGroup> group_;
  std::unordered_map<const void*, int> owners_;
  std::vector<int64_t> elements_;  // number that each rank owns
  std::vector<Chunk> chunks_;      // in the order in which all ranks send them
  std::unique_ptr<torch::optim::Optimizer> local_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_OPTIM_ZERO_REDUNDANCY_OPTIMIZER_H_
