#ifndef DDPRUN_EXAMPLES_CPP_GPT_GPT_TRAINER_H_
#define DDPRUN_EXAMPLES_CPP_GPT_GPT_TRAINER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/steady_time.h"
#include "examples/cpp/gpt/model.h"
#include "examples/cpp/gpt/text_dataset.h"
#include "worker_runtime/checkpoint/checkpointer.h"
#include "worker_runtime/data/distributed_sampler.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/extras/optim.h"
#include "worker_runtime/extras/summary_writer.h"
#include "worker_runtime/worker.h"

namespace gpt {

// The flags of train_gpt.
struct TrainOptions {
  std::string text = ddprun::kDefaultText;
  int64_t steps = 400;      // total optimizer steps
  int64_t batch_size = 16;  // blocks per rank and step
  Config model = {
      .vocab_size = 1, .block_size = 64, .n_layer = 2, .n_head = 4, .n_embd = 64};  // vocab_size is set from the text
  double lr = 3e-3;
  double weight_decay = 0.1;
  ddprun::AdamWKernel kernel = ddprun::AdamWKernel::kFused;
  int64_t seed = 1;             // seed for the order of samples
  std::string snapshot;         // folder of checkpoints; empty: none
  int64_t snapshot_every = 50;  // steps
  int64_t log_every = 20;       // steps
  std::string tensorboard;      // folder of event files; empty: none
  int64_t sample = 300;         // characters to write at the end
};

// Trains a character-level GPT on one rank, starting from the newest snapshot. Prints progress.
// Thread-compatible.
class Trainer {
 public:
  // Collective, like the other methods. Errors: InvalidArgument if text, model and batch size don't match, or a
  // snapshot is from another text or model; those of ReadText, Checkpointer::Resume and ProcessGroup.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(ddprun::Worker& worker, const TrainOptions& options);

  // Trains until the last step. Throws like LibTorch.
  absl::Status Train();

  // Rank 0 prints a sample of generated text.
  void Sample();

 private:
  Trainer(ddprun::Worker& worker, const TrainOptions& options, ddprun::TextDataset dataset,
          ddprun::DistributedSampler sampler);

  absl::Status LoadSnapshot();
  absl::Status SaveSnapshot();
  // This rank's next batch; starts a new epoch if no full batch is left.
  ddprun::TextDataset::Example NextBatch();
  at::Tensor Step(const ddprun::TextDataset::Example& batch);
  void SetLearningRate();
  absl::Status Report(const at::Tensor& loss, double steps_per_second);

  ddprun::Worker& worker_;
  const TrainOptions options_;
  const ddprun::TextDataset dataset_;
  ddprun::DistributedSampler sampler_;
  Model model_;
  ddprun::AdamW optimizer_;
  std::unique_ptr<ddprun::Checkpointer> checkpointer_;  // nullptr: no snapshots
  std::unique_ptr<ddprun::SummaryWriter> writer_;       // nullptr: no event files
  std::shared_ptr<ddprun::DistributedDataParallel<ModelImpl>> ddp_;
  int64_t step_ = 0;
};

}  // namespace gpt

#endif  // DDPRUN_EXAMPLES_CPP_GPT_GPT_TRAINER_H_
