// An elastic trainer, built outside of ddprun's tree: learns captions of small pictures.
//
//   captions FOLDER             trains; checkpoints in FOLDER
//   captions FOLDER lose STEP   rank 1 is killed in this step, in the first round
//   captions FOLDER die STEP    all ranks are killed in this step, in the first round
//   captions FOLDER stop STEP   the launcher receives SIGTERM in this step
//
// Rank 0 prints losses and finally the bits of all trained values.
#include <signal.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdio>
#include <limits>
#include <string>
#include <utility>

#include "worker_runtime/worker_runtime.h"

namespace {

constexpr int64_t kPictures = 100, kSide = 8, kWords = 12, kLength = 5, kWidth = 16;
constexpr int64_t kSteps = 20, kBatch = 4, kMicroBatches = 2, kStepsPerSave = 5;

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

// Kills or stops something, if a step of the first round is reached.
void Happen(const std::string& event, const ddprun::Worker& worker) {
  if (worker.env().restart_count > 0) return;
  if (event == "die" || (event == "lose" && worker.env().rank == 1)) raise(SIGKILL);
  if (event != "stop") return;
  if (worker.env().rank == 0) kill(getppid(), SIGTERM);
  while (ddprun::TimeUntilStop() == absl::InfiniteDuration()) usleep(1000);
}

absl::Status Train(ddprun::Worker& worker, const std::string& folder, const std::string& event, int64_t event_step) {
  Captioner net;
  ddprun::DistributedDataParallel ddp(net);
  ddprun::AdamW optimizer(ddprun::Parameters(net), torch::optim::AdamWOptions(2e-2));
  ddprun::LambdaLR scheduler(optimizer, ddprun::CosineWithWarmup(3, kSteps));
  ddprun::BatchSampler sampler(kPictures, {.batch_size = kBatch});
  ddprun::Metrics metrics;
  auto pictures = Pictures().map(torch::data::transforms::Stack<>());
  const torch::Tensor average = net->mix->weight.detach().clone();
  double best_loss = std::numeric_limits<double>::infinity();

  ddprun::Training training(worker, ddp, optimizer,
                            {.steps = kSteps,
                             .checkpoint = {.folder = folder},
                             .checkpoint_every = kStepsPerSave,
                             .agree_every = absl::ZeroDuration()});
  training.Add(scheduler, sampler, metrics);
  DDPRUN_RETURN_IF_ERROR(training.state().AddTensor("average", average));
  DDPRUN_RETURN_IF_ERROR(training.state().AddValue("best_loss", &best_loss));

  const auto backward = [&](ddprun::Step& step) {
    auto batch = pictures.get_batch(step.Next(sampler));
    const torch::Tensor logits = ddp(batch.data, batch.target).flatten(0, 1);
    const torch::Tensor loss = torch::nn::functional::cross_entropy(logits, batch.target.slice(1, 1).flatten());
    step.Backward(loss / kMicroBatches);
    metrics.Add("loss", loss);
  };
  bool began = false;
  DDPRUN_RETURN_IF_ERROR(training.Run([&](ddprun::Step& step) -> absl::Status {
    if (!std::exchange(began, true) && worker.env().rank == 0) {
      std::printf("begins at step %lld, epoch %lld, position %lld\n", static_cast<long long>(step.number()),
                  static_cast<long long>(sampler.epoch()), static_cast<long long>(sampler.position()));
      std::fflush(stdout);
    }
    if (step.number() == event_step) Happen(event, worker);
    {
      const auto no_sync = ddp.no_sync();
      backward(step);
    }
    backward(step);
    step.ClipGradNorm(1.0);
    DDPRUN_ASSIGN_OR_RETURN(const auto values, metrics.Reduce(*worker.group()));
    best_loss = std::min(best_loss, values.at("loss"));
    step.Commit([&] {
      const torch::NoGradGuard no_grad;
      average.lerp_(net->mix->weight, 0.1);
    });
    if (worker.env().rank != 0) return absl::OkStatus();
    std::printf("step %lld loss %a best %a rate %a\n", static_cast<long long>(step.number() + 1), values.at("loss"),
                best_loss, scheduler.get_last_lr()[0]);
    std::fflush(stdout);
    return absl::OkStatus();
  }));
  if (!training.finished() || worker.env().rank != 0) return absl::OkStatus();
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
  ddprun::RunWorker({.seed = 1, .timeout = absl::Minutes(2)},
                    [&](ddprun::Worker& worker) { return Train(worker, argv[1], event, event_step); });
}
