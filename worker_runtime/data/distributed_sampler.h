#ifndef DDPRUN_WORKER_RUNTIME_DATA_DISTRIBUTED_SAMPLER_H_
#define DDPRUN_WORKER_RUNTIME_DATA_DISTRIBUTED_SAMPLER_H_

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

namespace ddprun {

struct DistributedSamplerOptions {
  int num_replicas = 1;  // the size of the process group
  int rank = 0;          // this process's rank in the group
  bool shuffle = true;
  int64_t seed = 0;        // must be the same on all ranks
  bool drop_last = false;  // true: drop the samples that do not divide evenly; false: repeat some samples instead
};

// A rank's subset of a dataset's indices: identical, in contents and order, to Python's
// torch.utils.data.DistributedSampler with the same arguments and epoch.
// (torch::data::samplers::DistributedRandomSampler differs: it shuffles differently, takes no seed, and splits into
// contiguous parts.)
//
//   absl::StatusOr<ddprun::DistributedSampler> sampler = ddprun::DistributedSampler::Create(
//       dataset.size(), {.num_replicas = group->size(), .rank = group->rank()});
//   auto loader = torch::data::make_data_loader(dataset, *sampler, batch_size);
//   for (int epoch = 0; epoch < epochs; ++epoch) {
//     sampler->set_epoch(epoch);  // otherwise every epoch has the same order
//     for (auto& batch : *loader) ...
//   }
//
// Copies share one state, so set_epoch also applies to the data loader's copy. Thread-compatible.
//
// A shuffled order of n samples needs 4 n bytes while it is generated (8 n from 2^32 samples on) and 4 n / num_replicas
// afterwards; without shuffling nothing is stored. It is generated at its first use.
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  // `length`: number of samples in the dataset. InvalidArgument: a negative length, num_replicas less than 1, a rank
  // outside [0, num_replicas - 1].
  static absl::StatusOr<DistributedSampler> Create(int64_t length, const DistributedSamplerOptions& options);

  // Continues with `epoch`, at this rank's `position` in it (a position beyond the end counts as the end). The reset by
  // which a data loader starts keeps that position. Without a position: at the beginning, or, if the epoch was just
  // resumed (by load or by a call with a position) and nothing has been drawn since, at the resumed position, so that a
  // training loop calls set_epoch(epoch) in every epoch, as in Python.
  void set_epoch(int64_t epoch, std::optional<int64_t> position = std::nullopt);

  // Counts samples that the trainer has used, after each batch. For data loaders with worker threads, which draw
  // indices in advance: from the first call on, position() counts the samples used instead of the indices drawn.
  void MarkUsed(int64_t samples);

  int64_t epoch() const;
  // Number of this epoch's indices that this rank has returned so far, or, with MarkUsed, used. Save it in a
  // checkpoint.
  int64_t position() const;
  // The arguments of Create, for code that saves the position for all ranks.
  const DistributedSamplerOptions& options() const;
  // Number of indices per rank and epoch (Python's len(sampler)); the same on all ranks.
  int64_t size() const;

  // Restarts this epoch, unless set_epoch or load was called just before. `new_size`: the dataset's new number of
  // samples.
  void reset(std::optional<size_t> new_size = std::nullopt) override;
  // At most `batch_size` indices, fewer at the end of the epoch; nullopt after it.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  // Save and load epoch and position. Like PyTorch's samplers, they throw c10::Error if the archive lacks these
  // entries.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct State;
  explicit DistributedSampler(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DATA_DISTRIBUTED_SAMPLER_H_
