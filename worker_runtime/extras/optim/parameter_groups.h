#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_OPTIM_PARAMETER_GROUPS_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_OPTIM_PARAMETER_GROUPS_H_

#include <torch/optim/optimizer.h>

#include <vector>

namespace ddprun {

// Throws c10::ValueError if a parameter is in `groups` more than once, within a group or in two groups. `optimizer`
// names the class in the message. Thread-safe.
void CheckEachOnce(const char* optimizer, const std::vector<torch::optim::OptimizerParamGroup>& groups);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_OPTIM_PARAMETER_GROUPS_H_
