// Learns on which of two spirals a point lies: one process, LibTorch alone.
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>

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

void Train(int epochs) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Linear(64, 64), torch::nn::ReLU(),
                            torch::nn::Linear(64, 2));
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(3e-3));

  Spirals spirals;
  auto loader = torch::data::make_data_loader(spirals.map(torch::data::transforms::Stack<>()),
                                              torch::data::samplers::RandomSampler(*spirals.size()), /*batch_size=*/40);

  for (int epoch = 0; epoch < epochs; ++epoch) {
    torch::Tensor loss;
    for (auto& batch : *loader) {
      loss = F::cross_entropy(net->forward(batch.data), batch.target);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
    }
    std::printf("epoch %d: loss %.4f\n", epoch, loss.item<double>());
  }
  torch::save(net, "spirals.pt");
}

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 10;
  Train(epochs);
}
