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

absl::Status Train(int epochs, ddprun::Worker& worker) {
  torch::nn::Sequential net(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Linear(64, 64), torch::nn::ReLU(),
                            torch::nn::Linear(64, 2));
  net->to(worker.device);
  torch::optim::AdamW optimizer(ddprun::Parameters(net), torch::optim::AdamWOptions(3e-3));

  DDPRUN_ASSIGN_OR_RETURN(auto ddp, ddprun::MakeDistributedDataParallel(net, worker.group));

  Spirals spirals;
  const int ranks = worker.group->size();
  DDPRUN_ASSIGN_OR_RETURN(auto sampler, ddprun::DistributedSampler::Create(
                                            *spirals.size(), {.num_replicas = ranks, .rank = worker.group->rank()}));
  auto loader = torch::data::make_data_loader(spirals.map(torch::data::transforms::Stack<>()), sampler,
                                              /*batch_size=*/(40 + ranks - 1) / ranks);

  DDPRUN_ASSIGN_OR_RETURN(auto checkpoints,
                          ddprun::Checkpointer::Create(worker.group, *net, &optimizer, {.folder = "checkpoints"}));
  DDPRUN_ASSIGN_OR_RETURN(auto saved, checkpoints->Resume());

  int64_t step = saved.progress.step;
  for (int epoch = saved.progress.epoch; epoch < epochs; ++epoch) {
    sampler.set_epoch(epoch);
    torch::Tensor loss;
    for (auto& batch : *loader) {
      loss = torch::nn::functional::cross_entropy(ddp->forward(batch.data.to(worker.device)),
                                                  batch.target.to(worker.device));
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      ++step;
    }
    DDPRUN_ASSIGN_OR_RETURN(double mean, ddprun::LossAveragedOverRanks(loss, *worker.group));
    if (worker.group->rank() == 0) std::printf("epoch %d: loss %.4f\n", epoch, mean);
    DDPRUN_RETURN_IF_ERROR(checkpoints->Save({.step = step, .epoch = epoch + 1}));
  }
  if (worker.group->rank() == 0) torch::save(net, "spirals.pt");
  return checkpoints->Finish();
}

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 10;
  ddprun::RunWorker({.device = "auto", .seed = 1}, [&](ddprun::Worker& worker) { return Train(epochs, worker); });
}
