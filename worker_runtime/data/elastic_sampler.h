#ifndef DDPRUN_WORKER_RUNTIME_DATA_ELASTIC_SAMPLER_H_
#define DDPRUN_WORKER_RUNTIME_DATA_ELASTIC_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddprun {

struct ElasticSamplerOptions {
  int64_t batch_size = 1;  // samples per step: of each rank, or of all ranks together
  // Batch size to keep when the number of ranks changes. false: each rank's, so that the global batch grows and shrinks
  // with the number of ranks, as with DistributedSampler. true: the global one, which the ranks divide as evenly as
  // they can.
  bool keep_global_batch = false;
  bool shuffle = true;
  int64_t seed = 0;  // must be the same on all ranks
};

// One rank's samples for one step.
struct ElasticBatch {
  int64_t epoch = 0;
  std::vector<size_t> indices;  // never empty
  int64_t global_size = 0;      // samples of all ranks together
  // Factor for the mean loss of this rank's samples, so that DistributedDataParallel's average over ranks is the mean
  // over the global batch: 1 if it divides evenly.
  double loss_weight = 1;
  // No sample was left for this rank. It gets one that another rank trains on, with loss_weight 0.
  bool padding = false;
};

// The samples of each step in a training whose number of ranks changes: every sample is trained on exactly once per
// epoch, regardless of ranks that die or join in between. With an unchanged number of ranks, the batches are those of
// DistributedSampler (and of Python's) with the same seed and epoch, except that the last, uneven step of an epoch
// repeats no sample.
//
//   auto sampler = ddprun::ElasticSampler::Create(dataset.size(), {.batch_size = 32});
//   if (absl::Status status = state.AddSampler(*sampler); !status.ok()) return status;
//   sampler->SetWorld(worker.env().rank, worker.env().world_size);        // in every round; ElasticTrainer does it
//   const ddprun::ElasticBatch batch = sampler->Next();                   // in every step
//   at::Tensor loss = cross_entropy(ddp.forward(inputs), targets) * batch.loss_weight;
//
// The position, which is the number of samples that all ranks together have trained on, is part of the TrainingState:
// it is rolled back with a step and sent to newcomers with the rest. A step takes the next samples of the epoch's
// order; rank r of W takes every W-th of them, starting at number r.
//
// A shuffled order of n samples takes 4 n bytes (8 n from 2^32 samples on). Thread-compatible.
class ElasticSampler {
 public:
  // `length`: number of samples in the dataset. InvalidArgument: it or the batch size is less than 1.
  static absl::StatusOr<ElasticSampler> Create(int64_t length, const ElasticSamplerOptions& options);

  // Sets this rank and the number of ranks for the following steps. REQUIRES: 0 <= rank < world_size.
  void SetWorld(int rank, int world_size);

  // Returns this rank's part of the next step. All ranks must call it in every step. Starts the next epoch at the end
  // of one.
  ElasticBatch Next();

  int64_t epoch() const { return epoch_; }
  // Samples of this epoch given out to all ranks together.
  int64_t position() const { return position_; }
  int64_t length() const { return length_; }
  const ElasticSamplerOptions& options() const { return options_; }

  // Continues at this position. InvalidArgument: a negative epoch, or a position outside [0, length].
  absl::Status Seek(int64_t epoch, int64_t position);

 private:
  ElasticSampler(int64_t length, const ElasticSamplerOptions& options) : length_(length), options_(options) {}
  size_t SampleAt(int64_t place);

  int64_t length_;
  ElasticSamplerOptions options_;
  int rank_ = 0;
  int world_size_ = 1;
  int64_t epoch_ = 0;
  int64_t position_ = 0;
  std::optional<int64_t> drawn_epoch_;  // epoch whose order is in one of the next two
  std::vector<uint32_t> narrow_;
  std::vector<uint64_t> wide_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DATA_ELASTIC_SAMPLER_H_
