#include "benchmarks/ddp/net.h"

#include <ATen/ATen.h>

namespace ddprun::bench {

GptNet::GptNet(const gpt::Config& config) : model_(register_module("model", gpt::Model(config))) {}

at::Tensor GptNet::forward(const at::Tensor& x) { return model_->forward(x); }

at::Tensor GptNet::Loss(const at::Tensor& logits, const at::Tensor& y) const { return gpt::Loss(logits, y); }

MlpNet::MlpNet()
    : first_(register_module("first", Linear(Batches::kFeatures, kWidth))),
      second_(register_module("second", Linear(kWidth, kWidth))),
      third_(register_module("third", Linear(kWidth, kWidth))),
      head_(register_module("head", Linear(kWidth, Batches::kClasses))) {}

at::Tensor MlpNet::forward(const at::Tensor& x) {
  return head_->forward(at::relu(third_->forward(at::relu(second_->forward(at::relu(first_->forward(x)))))));
}

at::Tensor MlpNet::Loss(const at::Tensor& logits, const at::Tensor& y) const {
  return at::cross_entropy_loss(logits, y);
}

}  // namespace ddprun::bench
