// The trainer of single.cc, distributed and elastic: ddprun --nproc-per-node=2 --max-restarts=3 --no-python ./elastic
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>

#include "worker_runtime/worker_runtime.h"

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

absl::Status Train(int epochs, ddprun::ElasticWorker& worker) {
  torch::nn::Sequential net(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Linear(64, 64), torch::nn::ReLU(),
                            torch::nn::Linear(64, 2));
  net->to(worker.device());
  torch::optim::AdamW optimizer(ddprun::Parameters(net), torch::optim::AdamWOptions(3e-3));

  Spirals spirals;
  auto batches = spirals.map(torch::data::transforms::Stack<>());
  const int64_t size = *spirals.size(), batch_size = 40;
  DDPRUN_ASSIGN_OR_RETURN(auto sampler,
                          ddprun::ElasticSampler::Create(size, {.batch_size = batch_size, .keep_global_batch = true}));

  ddprun::ElasticDdp ddp(net);
  const auto step = [&](int64_t) -> absl::StatusOr<torch::Tensor> {
    const ddprun::ElasticBatch samples = sampler.Next();
    auto batch = batches.get_batch(samples.indices);
    torch::Tensor loss =
        torch::nn::functional::cross_entropy(ddp(batch.data.to(worker.device())), batch.target.to(worker.device()));
    optimizer.zero_grad();
    (loss * samples.loss_weight).backward();
    return loss;
  };
  const auto committed = [&](int64_t steps, const torch::Tensor& loss) {
    const int64_t done = steps * batch_size;
    if (done % size == 0 && worker.env().rank == 0)
      std::printf("epoch %d: loss %.4f\n", static_cast<int>(done / size) - 1, loss.item<double>());
    return absl::OkStatus();
  };
  ddprun::ElasticTrainer trainer(
      worker, {.model = &ddp, .optimizer = &optimizer, .sampler = &sampler, .step = step, .committed = committed},
      {.steps = epochs * size / batch_size, .seed = 1, .checkpoint = {.folder = "checkpoints"}});
  DDPRUN_RETURN_IF_ERROR(trainer.Train());
  if (worker.env().rank == 0) torch::save(net, "spirals.pt");
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 10;
  ddprun::RunElasticWorker({.device = "auto", .seed = 1}, [&](auto& worker) { return Train(epochs, worker); });
}
