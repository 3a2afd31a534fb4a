#ifndef DDPRUN_WORKER_RUNTIME_DATA_BATCH_SAMPLER_H_
#define DDPRUN_WORKER_RUNTIME_DATA_BATCH_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace ddprun {

struct BatchSamplerOptions {
  int64_t batch_size = 1;  // samples per step: of each rank, or of all ranks together
  // Batch size to keep when the number of ranks changes. false: each rank's, so that the global batch grows and shrinks
  // with the number of ranks, as with DistributedSampler. true: the global one, which the ranks divide as evenly as
  // they can.
  bool keep_global_batch = false;
  bool shuffle = true;
  int64_t seed = 0;  // seed of the order, besides that of WorkerOptions; must be the same on all ranks
};

// One rank's samples for one step.
struct Batch {
  int64_t epoch = 0;
  std::vector<size_t> indices;  // never empty
  int64_t global_size = 0;      // samples of all ranks together
  // Factor for the mean loss of this rank's samples, so that DistributedDataParallel's average over ranks is the mean
  // over the global batch: 1 if it divides evenly.
  double loss_weight = 1;
  // No sample was left for this rank. It gets one that another rank trains on, with loss_weight 0.
  bool padding = false;
};

// The samples of each step, like Python's BatchSampler around a DistributedSampler, in a training whose number of ranks
// may change: every sample is trained on exactly once per epoch, regardless of ranks that die or join in between. With
// an unchanged number of ranks, the batches are those of DistributedSampler (and of Python's) with the same seed and
// epoch, except that the last, uneven step of an epoch repeats no sample.
//
//   ddprun::BatchSampler sampler(dataset.size(), {.batch_size = 32});
//   training.Add(sampler);
//   ... step.Next(sampler) ...                    // in every step, the indices of this rank's samples
//
// In a loop of your own, add it to the TrainingState, call SetWorld in every round and Next in every step, and multiply
// the mean loss by Batch::loss_weight.
//
// The position, which is the number of samples that all ranks together have trained on, is part of the TrainingState:
// it is rolled back with a step and sent to newcomers with the rest. A step takes the next samples of the epoch's
// order; rank r of W takes every W-th of them, starting at number r.
//
// A shuffled order of n samples takes 4 n bytes (8 n from 2^32 samples on). Thread-compatible.
class BatchSampler {
 public:
  // `length`: number of samples in the dataset. Throws std::invalid_argument: it or the batch size is less than 1.
  BatchSampler(int64_t length, const BatchSamplerOptions& options);

  // Sets this rank and the number of ranks for the following steps. REQUIRES: 0 <= rank < world_size.
  void SetWorld(int rank, int world_size);

  // Returns this rank's part of the next step. All ranks must call it in every step. Starts the next epoch at the end
  // of one.
  Batch Next();

  int64_t epoch() const { return epoch_; }
  // Samples of this epoch given out to all ranks together.
  int64_t position() const { return position_; }
  int64_t length() const { return length_; }
  const BatchSamplerOptions& options() const { return options_; }

  // Continues at this position. InvalidArgument: a negative epoch, or a position outside [0, length].
  absl::Status Seek(int64_t epoch, int64_t position);

 private:
  size_t SampleAt(int64_t place);

  int64_t length_;
  BatchSamplerOptions options_;
  int rank_ = 0;
  int world_size_ = 1;
  int64_t epoch_ = 0;
  int64_t position_ = 0;
  std::optional<int64_t> drawn_epoch_;  // epoch whose order is in one of the next two
  std::vector<uint32_t> narrow_;
  std::vector<uint64_t> wide_;
};

// Fills `out` with the numbers 0 to out.size() - 1 in the order of torch.randperm(n, generator=g.manual_seed(seed)) on
// the CPU, in about a quarter of its time (10^8 numbers: 2.9 s instead of 13 s): random numbers are generated ahead, so
// that the elements to be swapped are prefetched into the cache. Fisher-Yates shuffle with a Mersenne Twister
// (MT19937). The 32-bit form is for sizes up to 2^32. Thread-safe.
void RandomPermutation(uint64_t seed, absl::Span<uint32_t> out);
void RandomPermutation(uint64_t seed, absl::Span<uint64_t> out);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DATA_BATCH_SAMPLER_H_
