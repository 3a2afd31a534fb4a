#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_NN_NAN_IN_FORWARD_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_NN_NAN_IN_FORWARD_H_

#include <torch/nn/module.h>

#include <string>

#include "absl/functional/function_ref.h"

namespace ddprun {

// Names the first operator of `forward` that returns NaN for inputs without NaN, and the last parameter used before it,
// for a rank whose loss is NaN (see NanDetector). Watches all operators (at::RecordFunction), so it is slow: call it
// after the failure, with the module's own forward and the batch that failed:
//
//   if (std::isnan(ddprun::LossOfThisRank(loss))) {
//     std::cerr << ddprun::NanInForward(*model, [&] { Loss(model->forward(inputs), targets); }) << "\n";
//   }
//
// Infinite values are no error here: attention masks contain them. Dropout draws different numbers than before. If
// there is no NaN, the text says so. Does not communicate. Throws what `forward` throws. Watches only the calling
// thread.
std::string NanInForward(const torch::nn::Module& module, absl::FunctionRef<void()> forward);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_NN_NAN_IN_FORWARD_H_
