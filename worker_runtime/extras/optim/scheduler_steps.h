#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_OPTIM_SCHEDULER_STEPS_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_OPTIM_SCHEDULER_STEPS_H_

#include <torch/optim/schedulers/lr_scheduler.h>

namespace ddprun {

// Number of steps that the scheduler has made. LibTorch counts them in a protected member and has no state_dict.
inline unsigned& StepsOf(torch::optim::LRScheduler& scheduler) {
  struct Open : torch::optim::LRScheduler {
    static unsigned& Steps(torch::optim::LRScheduler& of) { return of.*(&Open::step_count_); }
  };
  return Open::Steps(scheduler);
}

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_OPTIM_SCHEDULER_STEPS_H_
