#include "examples/cpp/gpt/model.h"

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker_runtime/extras/nn.h"

namespace gpt {
namespace {

namespace nn = torch::nn;
using ddprun::Linear;

// Multi-head attention in which every position attends to itself and to earlier ones.
class CausalSelfAttention : public nn::Module {
 public:
  explicit CausalSelfAttention(const Config& config)
      : n_head_(config.n_head),
        dropout_(config.dropout),
        c_attn_(register_module("c_attn", Linear(config.n_embd, 3 * config.n_embd))),
        c_proj_(register_module("c_proj", Linear(config.n_embd, config.n_embd))),
        resid_dropout_(register_module("resid_dropout", nn::Dropout(config.dropout))) {}

  // Input and output have the shape [batch, time, n_embd].
  at::Tensor forward(const at::Tensor& x) {
    const int64_t batch = x.size(0), time = x.size(1), width = x.size(2);
    const std::vector<at::Tensor> parts = c_attn_->forward(x).split(width, /*dim=*/2);
    const at::Tensor q = SplitHeads(parts[0]);
    const at::Tensor k = SplitHeads(parts[1]);
    const at::Tensor v = SplitHeads(parts[2]);
    const at::Tensor y = at::scaled_dot_product_attention(q, k, v, /*attn_mask=*/{}, is_training() ? dropout_ : 0.0,
                                                          /*is_causal=*/true);
    const at::Tensor joined = y.transpose(1, 2).contiguous().view({batch, time, width});
    return resid_dropout_->forward(c_proj_->forward(joined));
  }

 private:
  // [batch, time, n_embd] -> [batch, n_head, time, n_embd / n_head]
  at::Tensor SplitHeads(const at::Tensor& x) const {
    return x.view({x.size(0), x.size(1), n_head_, x.size(2) / n_head_}).transpose(1, 2);
  }

  const int64_t n_head_;
  const double dropout_;
  Linear c_attn_;
  Linear c_proj_;
  nn::Dropout resid_dropout_;
};

// Applies the same small network at every position.
class Mlp : public nn::Module {
 public:
  explicit Mlp(const Config& config)
      : c_fc_(register_module("c_fc", Linear(config.n_embd, 4 * config.n_embd))),
        c_proj_(register_module("c_proj", Linear(4 * config.n_embd, config.n_embd))),
        dropout_(register_module("dropout", nn::Dropout(config.dropout))) {}

  at::Tensor forward(const at::Tensor& x) {
    // minGPT's NewGELU, which ATen has as one kernel.
    const at::Tensor hidden = at::gelu(c_fc_->forward(x), "tanh");
    return dropout_->forward(c_proj_->forward(hidden));
  }

 private:
  Linear c_fc_;
  Linear c_proj_;
  nn::Dropout dropout_;
};

class Block : public nn::Module {
 public:
  explicit Block(const Config& config)
      : ln_1_(register_module("ln_1", nn::LayerNorm(nn::LayerNormOptions({config.n_embd})))),
        attn_(register_module("attn", std::make_shared<CausalSelfAttention>(config))),
        ln_2_(register_module("ln_2", nn::LayerNorm(nn::LayerNormOptions({config.n_embd})))),
        mlp_(register_module("mlp", std::make_shared<Mlp>(config))) {}

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor attended = x + attn_->forward(ln_1_->forward(x));
    return attended + mlp_->forward(ln_2_->forward(attended));
  }

 private:
  nn::LayerNorm ln_1_;
  std::shared_ptr<CausalSelfAttention> attn_;
  nn::LayerNorm ln_2_;
  std::shared_ptr<Mlp> mlp_;
};

}  // namespace

class Transformer : public nn::Module {
 public:
  explicit Transformer(const Config& config)
      : wte_(register_module("wte", nn::Embedding(config.vocab_size, config.n_embd))),
        wpe_(register_module("wpe", nn::Embedding(config.block_size, config.n_embd))),
        drop_(register_module("drop", nn::Dropout(config.dropout))),
        h_(register_module("h", nn::ModuleList())) {
    for (int64_t i = 0; i < config.n_layer; ++i) h_->push_back(std::make_shared<Block>(config));
    ln_f_ = register_module("ln_f", nn::LayerNorm(nn::LayerNormOptions({config.n_embd})));
  }

  at::Tensor forward(const at::Tensor& tokens) {
    // Each lookup is a separate statement: C++ does not specify which operand of + is evaluated first, and the order of
    // evaluation becomes the order of gradients in the reducer's buckets.
    const at::Tensor token = wte_->forward(tokens);
    const at::Tensor position = wpe_->forward(at::arange(tokens.size(1), tokens.options()));
    at::Tensor x = drop_->forward(token + position);
    for (const std::shared_ptr<nn::Module>& block : *h_) x = static_cast<Block&>(*block).forward(x);
    return ln_f_->forward(x);
  }

 private:
  nn::Embedding wte_;
  nn::Embedding wpe_;
  nn::Dropout drop_;
  nn::ModuleList h_;
  nn::LayerNorm ln_f_{nullptr};
};

absl::Status Check(const Config& config) {
  for (const auto& [name, value] : {std::pair("vocab_size", config.vocab_size),
                                    {"block_size", config.block_size},
                                    {"n_layer", config.n_layer},
                                    {"n_head", config.n_head},
                                    {"n_embd", config.n_embd}}) {
    if (value < 1) return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, ", but must be at least 1"));
  }
  if (config.n_embd % config.n_head != 0) {
    return absl::InvalidArgumentError(absl::StrCat("n_embd is ", config.n_embd, ", which is not a multiple of n_head ",
                                                   config.n_head, ": every head gets as many of its columns"));
  }
  if (!(config.dropout >= 0 && config.dropout < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("dropout is ", config.dropout, ", but must be from 0 to below 1"));
  }
  return absl::OkStatus();
}

ModelImpl::ModelImpl(const Config& config)
    : config_(config),
      transformer_(register_module("transformer", std::make_shared<Transformer>(config))),
      lm_head_(
          register_module("lm_head", Linear(nn::LinearOptions(config.n_embd, config.vocab_size).bias(false)).ptr())) {
  Initialise();
}

void ModelImpl::Initialise() {
  const at::NoGradGuard no_grad;
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(config_.n_layer));
  for (const auto& parameter : named_parameters()) {
    const std::string& name = parameter.key();
    if (absl::EndsWith(name, ".bias")) {
      nn::init::zeros_(parameter.value());
    } else if (parameter.value().dim() > 1) {
      nn::init::normal_(parameter.value(), 0.0, absl::EndsWith(name, "c_proj.weight") ? residual : 0.02);
    }  // The scales of layer norms stay at 1.
  }
}

at::Tensor ModelImpl::forward(const at::Tensor& tokens) {
  return static_cast<ddprun::LinearImpl&>(*lm_head_).forward(transformer_->forward(tokens));
}

at::Tensor ModelImpl::generate(at::Tensor tokens, int64_t count, double temperature, int64_t top_k) {
  const at::NoGradGuard no_grad;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t seen = std::min(tokens.size(1), config_.block_size);
    const at::Tensor all = forward(tokens.narrow(1, tokens.size(1) - seen, seen));
    at::Tensor logits = all.select(1, seen - 1) / temperature;
    if (top_k > 0) {
      const at::Tensor best = std::get<0>(logits.topk(std::min(top_k, config_.vocab_size)));
      logits = logits.masked_fill(logits < best.narrow(1, best.size(1) - 1, 1), -INFINITY);
    }
    tokens = at::cat({tokens, logits.softmax(-1).multinomial(1)}, /*dim=*/1);
  }
  return tokens;
}

at::Tensor Loss(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.view({-1, logits.size(-1)}), targets.reshape({-1}));
}

ParameterGroups GroupParameters(const nn::Module& model) {
  ParameterGroups groups;
  for (const auto& parameter : model.named_parameters()) {
    const std::string& name = parameter.key();
    const bool embedding = absl::EndsWith(name, "wte.weight") || absl::EndsWith(name, "wpe.weight");
    const bool decay = parameter.value().dim() > 1 && !embedding;
    (decay ? groups.decay : groups.no_decay).push_back(parameter.value());
  }
  return groups;
}

}  // namespace gpt
