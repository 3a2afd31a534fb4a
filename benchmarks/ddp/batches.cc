#include "benchmarks/ddp/batches.h"

#include <ATen/ATen.h>
#include <torch/utils.h>

namespace ddprun::benchmarks {
namespace {

constexpr int64_t kTokens = 200'000;
constexpr int64_t kStride = 7919;

at::Tensor RandomText(int64_t vocab) {
  torch::manual_seed(7);
  return at::randint(vocab, {kTokens}, at::kLong);
}

}  // namespace

Batches::Batches(int64_t batch, int64_t length, int64_t vocab, bool tokens)
    : batch_(batch),
      tokens_(tokens),
      starts_(kTokens - (length + 1)),
      text_(RandomText(vocab)),
      within_(at::arange(length + 1, at::kLong)),
      samples_(at::arange(batch, at::kLong)) {}

Batch Batches::Get(int64_t step, int rank, int world) const {
  const int64_t first = (step * world + rank) * batch_;
  const at::Tensor starts = ((samples_ + first) * kStride).remainder(starts_);
  const at::Tensor rows = text_.index({starts.unsqueeze(1) + within_});
  const int64_t length = rows.size(1) - 1;
  const at::Tensor x = rows.narrow(1, 0, length);
  if (tokens_) return {x, rows.narrow(1, 1, length)};
  return {x.to(at::kFloat) / 128, rows.select(1, length).remainder(kClasses)};
}

}  // namespace ddprun::benchmarks
