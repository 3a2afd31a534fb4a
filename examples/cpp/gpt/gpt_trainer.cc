#include "examples/cpp/gpt/gpt_trainer.h"

#include <ATen/Functions.h>
#include <torch/nn/utils/clip_grad.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "examples/cpp/example_main.h"
#include "worker_runtime/base/parameters.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"

namespace gpt {
namespace {

using examples::Say;

constexpr char kVocabulary[] = "vocabulary";  // key in the snapshot

Config WithVocabulary(Config config, const ddprun::TextDataset& dataset) {
  config.vocab_size = dataset.vocab_size();
  return config;
}

Model MakeModel(const TrainOptions& options, const ddprun::TextDataset& dataset, at::Device device) {
  Model model(WithVocabulary(options.model, dataset));
  model->to(device);
  return model;
}

ddprun::AdamW MakeOptimizer(const TrainOptions& options, const Model& model) {
  const auto defaults = torch::optim::AdamWOptions(options.lr).betas({0.9, 0.95});
  const ParameterGroups groups = GroupParameters(*model);
  auto decay = std::make_unique<torch::optim::AdamWOptions>(defaults);
  decay->weight_decay(options.weight_decay);
  auto no_decay = std::make_unique<torch::optim::AdamWOptions>(defaults);
  no_decay->weight_decay(0.0);
  return ddprun::AdamW({{groups.decay, std::move(decay)}, {groups.no_decay, std::move(no_decay)}}, defaults,
                       options.kernel);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(ddprun::Worker& worker, const TrainOptions& options) {
  DDPRUN_ASSIGN_OR_RETURN(const std::string text, ddprun::ReadText(options.text));
  DDPRUN_ASSIGN_OR_RETURN(auto dataset, ddprun::TextDataset::FromText(text, options.model.block_size));
  DDPRUN_RETURN_IF_ERROR(Check(WithVocabulary(options.model, dataset)));
  DDPRUN_ASSIGN_OR_RETURN(
      auto sampler, ddprun::DistributedSampler::Create(dataset.block_count(), {.num_replicas = worker.group()->size(),
                                                                               .rank = worker.group()->rank(),
                                                                               .seed = options.seed,
                                                                               .drop_last = true}));
  if (sampler.size() < options.batch_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text has ", sampler.size(), " blocks for each rank, fewer than ",
                     "--batch-size=", options.batch_size, ": take a longer text, a smaller batch or shorter blocks"));
  }
  std::unique_ptr<Trainer> trainer(new Trainer(worker, options, std::move(dataset), std::move(sampler)));
  DDPRUN_ASSIGN_OR_RETURN(trainer->ddp_, ddprun::MakeDistributedDataParallel(trainer->model_, worker.group()));
  DDPRUN_RETURN_IF_ERROR(trainer->LoadSnapshot());
  if (!options.tensorboard.empty()) {
    const ddprun::SummaryWriterOptions files = {.folder = options.tensorboard, .purge_step = trainer->step_ + 1};
    DDPRUN_ASSIGN_OR_RETURN(trainer->writer_, ddprun::SummaryWriter::Create(worker.env().rank, files));
  }
  return trainer;
}

Trainer::Trainer(ddprun::Worker& worker, const TrainOptions& options, ddprun::TextDataset dataset,
                 ddprun::DistributedSampler sampler)
    : worker_(worker),
      options_(options),
      dataset_(std::move(dataset)),
      sampler_(std::move(sampler)),
      model_(MakeModel(options, dataset_, worker.device())),
      optimizer_(MakeOptimizer(options, model_)) {}

absl::Status Trainer::LoadSnapshot() {
  if (options_.snapshot.empty()) return absl::OkStatus();
  DDPRUN_ASSIGN_OR_RETURN(checkpointer_, ddprun::Checkpointer::Create(worker_.group(), *model_, &optimizer_,
                                                                      {.folder = options_.snapshot}));
  DDPRUN_ASSIGN_OR_RETURN(const ddprun::CheckpointInfo info, checkpointer_->Resume());
  if (info.path.empty()) return absl::OkStatus();
  const ddprun::Progress& progress = info.progress;
  const auto vocabulary = progress.user.find(kVocabulary);
  if (vocabulary == progress.user.end() || vocabulary->second != dataset_.vocabulary()) {
    return absl::InvalidArgumentError(
        absl::StrCat(info.path, " is of another text: remove the folder, or give its text with --text"));
  }
  step_ = progress.step;
  sampler_.set_epoch(progress.epoch, progress.sampler_position / worker_.group()->size());
  if (worker_.env().rank == 0) Say(absl::StrCat("resumed from the snapshot: step ", step_, ", epoch ", progress.epoch));
  return absl::OkStatus();
}

absl::Status Trainer::SaveSnapshot() {
  if (checkpointer_ == nullptr) return absl::OkStatus();
  DDPRUN_RETURN_IF_ERROR(checkpointer_->Save({.step = step_,
                                              .epoch = sampler_.epoch(),
                                              .sampler_position = sampler_.position() * worker_.group()->size(),
                                              .sampler_seed = static_cast<uint64_t>(options_.seed),
                                              .user = {{kVocabulary, dataset_.vocabulary()}}}));
  if (worker_.env().rank == 0) Say(absl::StrCat("snapshot of step ", step_, " saved"));
  return absl::OkStatus();
}

absl::Status Trainer::Train() {
  const ddprun::SteadyTime began = ddprun::SteadyNow();
  const int64_t first = step_;
  while (step_ < options_.steps) {
    const at::Tensor loss = Step(NextBatch());
    const bool last = step_ == options_.steps;
    if (step_ % options_.log_every == 0 || step_ == 1 || last) {
      const double seconds = absl::ToDoubleSeconds(ddprun::SteadyNow() - began);
      DDPRUN_RETURN_IF_ERROR(Report(loss, static_cast<double>(step_ - first) / seconds));
    }
    if (step_ % options_.snapshot_every == 0 || last) DDPRUN_RETURN_IF_ERROR(SaveSnapshot());
  }
  return checkpointer_ == nullptr ? absl::OkStatus() : checkpointer_->Finish();
}

ddprun::TextDataset::Example Trainer::NextBatch() {
  std::optional<std::vector<size_t>> blocks = sampler_.next(options_.batch_size);
  if (!blocks.has_value() || blocks->size() < options_.batch_size) {
    sampler_.set_epoch(sampler_.epoch() + 1);
    blocks = sampler_.next(options_.batch_size);
  }
  const ddprun::TextDataset::Example batch = dataset_.get_batch(*blocks);
  return {batch.tokens.to(worker_.device()), batch.targets.to(worker_.device())};
}

at::Tensor Trainer::Step(const ddprun::TextDataset::Example& batch) {
  SetLearningRate();
  const at::Tensor loss = Loss(ddp_->forward(batch.tokens), batch.targets);
  ddp_->zero_grad();
  loss.backward();  // averages the gradients over all ranks meanwhile
  torch::nn::utils::clip_grad_norm_(ddprun::Parameters(model_), 1.0);
  optimizer_.step();
  ++step_;
  return loss.detach();
}

// Warms up over the first steps, then decays along a cosine to a tenth.
void Trainer::SetLearningRate() {
  const double done = static_cast<double>(step_) / static_cast<double>(options_.steps);
  const double rate = std::min(static_cast<double>(step_ + 1) / 20, 0.55 + 0.45 * std::cos(std::numbers::pi * done));
  for (torch::optim::OptimizerParamGroup& group : optimizer_.param_groups()) group.options().set_lr(options_.lr * rate);
}

absl::Status Trainer::Report(const at::Tensor& loss, double steps_per_second) {
  // Each rank has the loss of its own batch; the average is the loss of the global batch.
  DDPRUN_ASSIGN_OR_RETURN(const double average, ddprun::LossAveragedOverRanks(loss, *worker_.group()));
  if (worker_.env().rank != 0) return absl::OkStatus();
  const int64_t tokens = options_.batch_size * options_.model.block_size * worker_.group()->size();
  const double tokens_per_second = steps_per_second * static_cast<double>(tokens);
  if (writer_ != nullptr) {
    DDPRUN_RETURN_IF_ERROR(writer_->AddScalars({{"loss", average}, {"tokens_per_second", tokens_per_second}}, step_));
  }
  Say(absl::StrFormat(
      "step %4d/%d  epoch %d  rank 0's loss %.3f  averaged over ranks %.3f  (%.1f steps/s, %.0f tokens/s)", step_,
      options_.steps, sampler_.epoch(), ddprun::LossOfThisRank(loss), average, steps_per_second, tokens_per_second));
  return absl::OkStatus();
}

void Trainer::Sample() {
  if (worker_.env().rank != 0 || options_.sample == 0) return;
  model_->eval();
  const at::Tensor start = at::zeros({1, 1}, at::TensorOptions().dtype(at::kLong).device(worker_.device()));
  const std::string text = dataset_.Decode(model_->generate(start, options_.sample, /*temperature=*/0.7));
  Say(absl::StrCat("--- sample of generated text ---\n", absl::StripAsciiWhitespace(text), "\n--- end of sample ---"));
}

}  // namespace gpt
