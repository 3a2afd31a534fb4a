#ifndef DDPRUN_EXAMPLES_CPP_GPT_MODEL_H_
#define DDPRUN_EXAMPLES_CPP_GPT_MODEL_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"

// A GPT with minGPT's architecture and module names, so that both can load the same state_dict.
// examples/python/gpt_model.py is its counterpart: with the same seed, both start with bitwise identical parameters,
// which stay identical after a step.
namespace gpt {

struct Config {
  int64_t vocab_size = 128;
  int64_t block_size = 128;  // context length in tokens
  int64_t n_layer = 4;
  int64_t n_head = 4;
  int64_t n_embd = 128;  // a multiple of n_head
  double dropout = 0.0;  // 0 <= dropout < 1
};

// InvalidArgument names the invalid number. Call it before building the model.
absl::Status Check(const Config& config);

class Transformer;

// Thread-compatible, like every torch::nn::Module.
class ModelImpl : public torch::nn::Module {
 public:
  // Draws the weights from LibTorch's default generator (torch::manual_seed): normal with standard deviation 0.02, of
  // the projections back into the residual stream 0.02 / sqrt(2 * n_layer); biases are 0 (GPT-2's initialisation).
  explicit ModelImpl(const Config& config);

  // tokens: int64 [batch, time], time <= block_size. Returns the logits, float [batch, time, vocab_size].
  at::Tensor forward(const at::Tensor& tokens);

  // Continues tokens (int64 [batch, time], time >= 1) by `count` tokens, drawn from the `top_k` most likely ones (0:
  // from all) after dividing the logits by `temperature`. Without gradients; call eval() before.
  at::Tensor generate(at::Tensor tokens, int64_t count, double temperature = 1.0, int64_t top_k = 0);

  const Config& config() const { return config_; }

 private:
  void Initialise();

  const Config config_;
  std::shared_ptr<Transformer> transformer_;
  std::shared_ptr<torch::nn::Module> lm_head_;
};
TORCH_MODULE(Model);

// Mean cross entropy of logits [batch, time, vocab_size] and the next tokens, int64 [batch, time]: a float scalar.
at::Tensor Loss(const at::Tensor& logits, const at::Tensor& targets);

// The parameters, split by weight decay: weights of linear layers are decayed; biases, embeddings and layer norm scales
// are not. In the order of parameters().
struct ParameterGroups {
  std::vector<at::Tensor> decay;
  std::vector<at::Tensor> no_decay;
};
ParameterGroups GroupParameters(const torch::nn::Module& model);

}  // namespace gpt

#endif  // DDPRUN_EXAMPLES_CPP_GPT_MODEL_H_
