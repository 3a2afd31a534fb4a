#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_OPTIM_LAMBDA_LR_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_OPTIM_LAMBDA_LR_H_

#include <torch/optim/schedulers/lr_scheduler.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace ddprun {

// Python's torch.optim.lr_scheduler.LambdaLR, which LibTorch lacks: the learning rate of each parameter group is its
// rate when the scheduler was created, times factor(number of step() calls so far). As in Python, the constructor
// already sets the rates for 0 steps.
//
//   ddprun::LambdaLR scheduler(optimizer, ddprun::CosineWithWarmup(100, steps));
//   ...
//   optimizer.step();
//   scheduler.step();
//
// Create it before the state is resumed (TrainingState::AddScheduler): a checkpoint contains the number of steps but
// not the initial rates. The optimizer must outlive it. Not thread-safe, except for Of.
class LambdaLR : public torch::optim::LRScheduler {
 public:
  LambdaLR(torch::optim::Optimizer& optimizer, std::function<double(int64_t step)> factor);
  ~LambdaLR() override;
  LambdaLR(const LambdaLR&) = delete;
  LambdaLR& operator=(const LambdaLR&) = delete;

  // The objects of this optimizer that exist: Training finds with it those that were not added.
  static std::vector<const torch::optim::LRScheduler*> Of(const torch::optim::Optimizer& optimizer);

  // Rates as of the last step(), one per parameter group.
  std::vector<double> get_last_lr() const { return get_current_lrs(); }

 protected:
  std::vector<double> get_lrs() override;

 private:
  std::vector<double> LearningRates(int64_t step) const;

  const std::vector<double> base_lrs_;
  const std::function<double(int64_t)> factor_;
};

// Returns a factor that rises from 0 to 1 over `warmup_steps` and falls to `min_factor` along half a cosine until
// `total_steps`, where it stays. With min_factor 0 it is Hugging Face Transformers' get_cosine_schedule_with_warmup.
std::function<double(int64_t step)> CosineWithWarmup(int64_t warmup_steps, int64_t total_steps, double min_factor = 0);

// Like CosineWithWarmup with a straight line instead of the cosine: get_linear_schedule_with_warmup.
std::function<double(int64_t step)> LinearWithWarmup(int64_t warmup_steps, int64_t total_steps, double min_factor = 0);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_OPTIM_LAMBDA_LR_H_
