#ifndef DDPRUN_WORKER_RUNTIME_DDP_NAN_IN_FORWARD_H_
#define DDPRUN_WORKER_RUNTIME_DDP_NAN_IN_FORWARD_H_

#include <torch/nn/module.h>

#include <string>

#include "absl/functional/function_ref.h"

namespace ddprun {

// Names the first operator of `forward` that gives NaN for inputs without NaN, and the parameter that was used last
// before, for a rank whose loss is NaN (NanDetector tells). It watches all operators (at::RecordFunction), so it is
// slow: call it after the failure, with the module's own forward and the batch that failed:
//
//   if (std::isnan(ddprun::LossOfThisRank(loss))) {
//     std::cerr << ddprun::NanInForward(*model, [&] { Loss(model->forward(inputs), targets); }) << "\n";
//   }
//
// Infinite values are no error here: attention masks have them. Dropout draws other numbers than before. Without NaN
// the text says that. Does not communicate. Throws what `forward` throws. Watches the calling thread.
std::string NanInForward(const torch::nn::Module& module, absl::FunctionRef<void()> forward);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_NAN_IN_FORWARD_H_
