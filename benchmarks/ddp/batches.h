#ifndef DDPRUN_BENCHMARKS_DDP_BATCHES_H_
#define DDPRUN_BENCHMARKS_DDP_BATCHES_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ddprun::benchmarks {

struct Batch {
  at::Tensor x;
  at::Tensor y;
};

// Sequences of a random text with their next tokens: a function of step and rank, as in step_trainer.py. Reseeds
// LibTorch's default generator. Thread-compatible.
class Batches {
 public:
  static constexpr int64_t kClasses = 16;
  static constexpr int64_t kFeatures = 64;

  // For the GPT and the embedding: x, y int64 [batch, block], tokens below `vocab`.
  static Batches OfTokens(int64_t batch, int64_t block, int64_t vocab) { return Batches(batch, block, vocab, true); }
  // For the MLP and the CNN: x float [batch, kFeatures], y int64 [batch] below kClasses.
  static Batches OfFeatures(int64_t batch, int64_t vocab) { return Batches(batch, kFeatures, vocab, false); }

  Batch Get(int64_t step, int rank, int world) const;

 private:
  Batches(int64_t batch, int64_t length, int64_t vocab, bool tokens);

  const int64_t batch_;
  const bool tokens_;
  const int64_t starts_;  // positions in the text where a sequence may start
  const at::Tensor text_;
  const at::Tensor within_;   // offsets 0 to the sequence length, inclusive
  const at::Tensor samples_;  // 0 to batch - 1
};

}  // namespace ddprun::benchmarks

#endif  // DDPRUN_BENCHMARKS_DDP_BATCHES_H_
