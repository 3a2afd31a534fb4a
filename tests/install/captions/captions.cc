// A trainer that uses the worker runtime's support for resuming, built outside of its tree: learns captions of small
// pictures and resumes in the middle of an epoch.
//
//   captions FOLDER             trains; checkpoints in FOLDER
//   captions FOLDER die STEP    rank 1 is killed before this step, in the first round
//   captions FOLDER stop STEP   the launcher receives SIGTERM before this step
//
// Rank 0 prints losses and finally the bits of all trained values.
#include <signal.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdio>
#include <limits>
#include <string>

#include "worker_runtime/worker_runtime.h"

namespace {

constexpr int64_t kPictures = 100, kSide = 8, kWords = 12, kLength = 5, kWidth = 16;
constexpr int64_t kEpochs = 3, kBatch = 4, kMicroBatches = 2, kStepsPerSave = 5;
constexpr int64_t kStepsPerEpoch =
    (kPictures / 2 + kBatch * kMicroBatches - 1) / (kBatch * kMicroBatches);  // of 2 ranks

// Picture [1, 8, 8] and caption [5]; both follow from the index.
struct Pictures : torch::data::datasets::Dataset<Pictures> {
  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    const torch::Tensor pixel = torch::arange(kSide * kSide);
    const torch::Tensor word = torch::arange(kLength);
    return {((pixel * (i % 7 + 1) + i) % 23).to(torch::kFloat).view({1, kSide, kSide}) / 23,
            (word * (i % 7 + 1) + i) % kWords};
  }
  std::optional<size_t> size() const override { return kPictures; }
};

// Convolution and batch normalization encode the picture, an embedding the previous words; the embedding is also the
// output layer.
struct CaptionerImpl : torch::nn::Module {
  CaptionerImpl()
      : see(register_module("see", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 6, 3).stride(2)))),
        norm(register_module("norm", torch::nn::BatchNorm2d(6))),
        mix(register_module("mix", ddprun::Linear(6 * 3 * 3, kWidth))),
        drop(register_module("drop", torch::nn::Dropout(0.1))),
        words(register_module("words", torch::nn::Embedding(kWords, kWidth))),
        output(register_parameter("output", words->weight)) {}

  // Logits [batch, words of the caption - 1, 12].
  torch::Tensor forward(const torch::Tensor& pictures, const torch::Tensor& captions) {
    const torch::Tensor seen = mix(norm(see(pictures)).relu().flatten(1)).unsqueeze(1);
    const torch::Tensor said = words(captions.slice(1, 0, kLength - 1)).cumsum(1);
    return torch::linear(drop(torch::tanh(seen + said)), output);
  }

  torch::nn::Conv2d see;
  torch::nn::BatchNorm2d norm;
  ddprun::Linear mix;
  torch::nn::Dropout drop;
  torch::nn::Embedding words;
  torch::Tensor output;
};
TORCH_MODULE(Captioner);

void PrintBits(const std::string& name, const torch::Tensor& tensor) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  const torch::Tensor dense = tensor.detach().contiguous();
  const auto* const bytes = static_cast<const uint8_t*>(dense.const_data_ptr());
  for (size_t i = 0; i < dense.nbytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211u;
  std::printf("final %s %016llx\n", name.c_str(), static_cast<unsigned long long>(hash));
}

absl::Status Train(ddprun::Worker& worker, const std::string& folder, const std::string& event, int64_t event_step) {
  const bool reports = worker.env.rank == 0;
  torch::manual_seed(worker.env.rank);
  Captioner net;
  DDPRUN_ASSIGN_OR_RETURN(auto ddp, ddprun::MakeDistributedDataParallel(net, worker.group));
  ddprun::AdamW optimizer(ddprun::Parameters(net), torch::optim::AdamWOptions(2e-2));
  ddprun::LambdaLR scheduler(optimizer, ddprun::CosineWithWarmup(3, kEpochs * kStepsPerEpoch));
  DDPRUN_ASSIGN_OR_RETURN(auto sampler,
                          ddprun::DistributedSampler::Create(
                              kPictures, {.num_replicas = worker.group->size(), .rank = worker.group->rank()}));
  auto loader = torch::data::make_data_loader(Pictures().map(torch::data::transforms::Stack<>()), sampler,
                                              torch::data::DataLoaderOptions(kBatch).workers(1));
  const torch::Tensor average = net->mix->weight.detach().clone();
  double best_loss = std::numeric_limits<double>::infinity();

  ddprun::TrainingState state(*net, &optimizer);
  DDPRUN_RETURN_IF_ERROR(state.AddScheduler(scheduler));
  DDPRUN_RETURN_IF_ERROR(state.AddSampler(sampler));
  DDPRUN_RETURN_IF_ERROR(state.AddTensor("average", average));
  DDPRUN_RETURN_IF_ERROR(state.AddValue("best_loss", &best_loss));
  DDPRUN_ASSIGN_OR_RETURN(auto checkpoints, ddprun::Checkpointer::Create(worker.group, state, {.folder = folder}));
  DDPRUN_ASSIGN_OR_RETURN(const ddprun::CheckpointInfo from, checkpoints->Resume());
  int64_t step = from.progress.step;
  if (reports) {
    std::printf("begins at step %lld, epoch %lld, position %lld\n", static_cast<long long>(step),
                static_cast<long long>(sampler.epoch()), static_cast<long long>(sampler.position()));
    std::fflush(stdout);
  }

  std::optional<absl::Time> stop;
  for (int64_t epoch = sampler.epoch(); epoch < kEpochs && !stop; ++epoch) {
    sampler.set_epoch(epoch);
    int64_t micro_batch = 0;
    double sum = 0;
    for (auto& batch : *loader) {
      if (micro_batch == 0) {
        if (step + 1 == event_step && event == "die" && worker.env.rank == 1 && worker.env.restart_count == 0) {
          raise(SIGKILL);
        }
        const bool stops = step + 1 == event_step && event == "stop";
        if (stops && reports) kill(getppid(), SIGTERM);
        do {
          DDPRUN_ASSIGN_OR_RETURN(stop, ddprun::StopRequested(*worker.group));
        } while (stops && !stop);
        if (stop) {
          DDPRUN_RETURN_IF_ERROR(checkpoints->Save({.step = step, .epoch = epoch}));
          break;
        }
        ddp->zero_grad();
      }
      const auto backward = [&] {
        const torch::Tensor logits = ddp->forward(batch.data, batch.target).flatten(0, 1);
        const torch::Tensor next = batch.target.slice(1, 1).flatten();
        const torch::Tensor loss = torch::nn::functional::cross_entropy(logits, next) / kMicroBatches;
        loss.backward();
        sum += loss.item<double>();
      };
      sampler.MarkUsed(batch.data.size(0));
      const bool last = sampler.position() == sampler.size();
      if (++micro_batch < kMicroBatches && !last) {
        const auto no_sync = ddp->no_sync();
        backward();
        continue;
      }
      backward();
      ddprun::ClipGradNorm(ddprun::Parameters(net), 1.0);
      optimizer.step();
      scheduler.step();
      {
        const torch::NoGradGuard no_grad;
        average.lerp_(net->mix->weight, 0.1);
      }
      DDPRUN_ASSIGN_OR_RETURN(const double loss,
                              ddprun::AllReduceValue(*worker.group, sum, ddprun::ReduceOp::kAverage));
      best_loss = std::min(best_loss, loss);
      micro_batch = 0;
      sum = 0;
      ++step;
      if (reports) {
        std::printf("step %lld loss %a best %a rate %a\n", static_cast<long long>(step), loss, best_loss,
                    scheduler.get_last_lr()[0]);
        std::fflush(stdout);
      }
      if (step % kStepsPerSave == 0) DDPRUN_RETURN_IF_ERROR(checkpoints->Save({.step = step, .epoch = epoch}));
    }
  }
  DDPRUN_RETURN_IF_ERROR(checkpoints->Finish());
  if (stop || !reports) return absl::OkStatus();
  for (const auto& item : net->named_parameters()) PrintBits(item.key(), item.value());
  for (const auto& item : net->named_buffers()) PrintBits(item.key(), item.value());
  PrintBits("average", average);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) return 2;
  const std::string event = argc > 2 ? argv[2] : "";
  const int64_t event_step = argc > 3 ? std::atoll(argv[3]) : 0;
  ddprun::RunWorker({.timeout = absl::Minutes(2)},
                    [&](ddprun::Worker& worker) { return Train(worker, argv[1], event, event_step); });
}
