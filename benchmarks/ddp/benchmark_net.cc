#include "benchmarks/ddp/benchmark_net.h"

#include <ATen/ATen.h>

namespace ddprun::benchmarks {

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

CnnNet::CnnNet() {
  int64_t channels = 1;
  for (const int64_t next : {16, 32, 64}) {
    const std::string number = std::to_string(convolutions_.size());
    convolutions_.push_back(register_module(
        "conv" + number, torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, next, /*kernel_size=*/3).padding(1))));
    norms_.push_back(register_module("norm" + number, torch::nn::BatchNorm2d(next)));
    channels = next;
  }
  head_ = register_module("head", Linear(channels * 4 * 4, Batches::kClasses));
}

at::Tensor CnnNet::forward(const at::Tensor& x) {
  at::Tensor image = at::upsample_nearest2d(x.view({-1, 1, 8, 8}), {32, 32});
  for (size_t i = 0; i < convolutions_.size(); ++i) {
    image = at::max_pool2d(at::relu(norms_[i]->forward(convolutions_[i]->forward(image))), 2);
  }
  return head_->forward(image.flatten(1));
}

at::Tensor CnnNet::Loss(const at::Tensor& logits, const at::Tensor& y) const {
  return at::cross_entropy_loss(logits, y);
}

EmbeddingNet::EmbeddingNet(int64_t vocab, int64_t width)
    : table_(register_module("table", torch::nn::Embedding(vocab, width))),
      head_(register_module("head", Linear(width, Batches::kClasses))) {}

at::Tensor EmbeddingNet::forward(const at::Tensor& x) { return head_->forward(table_->forward(x).mean(1)); }

at::Tensor EmbeddingNet::Loss(const at::Tensor& logits, const at::Tensor& y) const {
  return at::cross_entropy_loss(logits, y.select(1, -1).remainder(Batches::kClasses));
}

std::shared_ptr<Net> MakeNet(const std::string& model, const gpt::Config& config) {
  if (model == "gpt") return std::make_shared<GptNet>(config);
  if (model == "cnn") return std::make_shared<CnnNet>();
  if (model == "embedding") return std::make_shared<EmbeddingNet>(config.vocab_size, config.n_embd);
  return std::make_shared<MlpNet>();
}

bool TakesTokens(const std::string& model) { return model == "gpt" || model == "embedding"; }

}  // namespace ddprun::benchmarks
