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
  int rank = 0;          // in it
  bool shuffle = true;
  int64_t seed = 0;        // the same on all ranks
  bool drop_last = false;  // true: leave out what does not divide evenly; false: give some samples twice instead
};

// A rank's share of a data set's indices: the same indices in the same order as those of Python's
// torch.utils.data.DistributedSampler with the same arguments and epoch.
// (torch::data::samplers::DistributedRandomSampler gives others: it shuffles in another way, takes no seed, and cuts
// contiguous shares.)
//
//   absl::StatusOr<ddprun::DistributedSampler> sampler = ddprun::DistributedSampler::Create(
//       dataset.size(), {.num_replicas = group->size(), .rank = group->rank()});
//   auto loader = torch::data::make_data_loader(dataset, *sampler, batch_size);
//   for (int epoch = 0; epoch < epochs; ++epoch) {
//     sampler->set_epoch(epoch);  // or every epoch has the same order
//     for (auto& batch : *loader) ...
//   }
//
// Copies share one state, so that set_epoch reaches the copy that a data loader took. Thread-compatible.
//
// A shuffled order of n samples needs 4 n bytes while it is drawn (8 n from 2^32 samples on) and 4 n / num_replicas
// afterwards; without shuffling nothing is stored. It is drawn when it is first asked for.
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  // `length`: samples of the data set. InvalidArgument names what can't be: a negative length, no replicas, a rank that
  // is not one of them.
  static absl::StatusOr<DistributedSampler> Create(int64_t length, const DistributedSamplerOptions& options);

  // The samples that come next are those of `epoch`, from this rank's `position` in it on (what is beyond the end
  // counts as the end). A data loader's reset at its start keeps that position.
  void set_epoch(int64_t epoch, int64_t position = 0);

  int64_t epoch() const;
  // How many of this epoch's indices this rank has been given. With size(), what a checkpoint needs.
  int64_t position() const;
  // Indices of one rank in an epoch (Python's len(sampler)): the same for all ranks.
  int64_t size() const;

  // Begins this epoch again, unless set_epoch or load came just before. `new_size`: the data set has as many samples
  // now.
  void reset(std::optional<size_t> new_size = std::nullopt) override;
  // At most `batch_size` indices, fewer at the end of the epoch; nullopt after it.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  // Epoch and position. As PyTorch's samplers they throw c10::Error if the archive has no such entries.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct State;
  explicit DistributedSampler(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DATA_DISTRIBUTED_SAMPLER_H_
