// The trainer of single.cc, distributed and elastic: ddprun --nproc-per-node=2 --max-restarts=3 --no-python ./elastic
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>

#include "worker_runtime/worker_runtime.h"

namespace F = torch::nn::functional;

// 2,000 points in the plane, half of them on each spiral.
class Spirals : public torch::data::datasets::Dataset<Spirals> {
 public:
  Spirals() {
    const torch::Tensor turn = torch::linspace(1, 9, 1000);
    const torch::Tensor arm = torch::stack({turn * turn.cos(), turn * turn.sin()}, 1) / 9;
    points_ = torch::cat({arm, -arm});
    arms_ = torch::arange(2000).div(1000, "floor");
  }
  torch::data::Example<> get(size_t i) override {
    return {points_[static_cast<int64_t>(i)], arms_[static_cast<int64_t>(i)]};
  }
  std::optional<size_t> size() const override { return points_.size(0); }

 private:
  torch::Tensor points_, arms_;
};

absl::Status Train(int epochs, ddprun::Worker& worker) {
  torch::nn::Sequential net(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Linear(64, 64), torch::nn::ReLU(),
                            torch::nn::Linear(64, 2));
  net->to(worker.device());
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(3e-3));

  Spirals spirals;
  auto samples = spirals.map(torch::data::transforms::Stack<>());
  const int64_t size = *spirals.size(), batch_size = 40, steps_per_epoch = size / batch_size;
  ddprun::BatchSampler sampler(size, {.batch_size = batch_size, .keep_global_batch = true});

  ddprun::DistributedDataParallel ddp(net);
  ddprun::Training training(worker, ddp, optimizer,
                            {.steps = epochs * steps_per_epoch, .checkpoint = {.folder = "checkpoints"}});
  training.Add(sampler);
  DDPRUN_RETURN_IF_ERROR(training.Run([&](ddprun::Step& step) {
    auto batch = samples.get_batch(step.Next(sampler));
    ddprun::Autocast autocast(worker.device().type(), torch::kBFloat16);
    torch::Tensor loss = F::cross_entropy(ddp(batch.data.to(worker.device())), batch.target.to(worker.device()));
    step.Backward(loss);
    step.Commit();
    if (step.number() % steps_per_epoch == steps_per_epoch - 1 && worker.env().rank == 0)
      std::printf("epoch %d: loss %.4f\n", int(step.number() / steps_per_epoch), loss.item<double>());
  }));
  if (training.finished() && worker.env().rank == 0) torch::save(net, "spirals.pt");
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 10;
  ddprun::RunWorker({.device = "auto", .seed = 1}, [&](ddprun::Worker& worker) { return Train(epochs, worker); });
}
