#include "worker_runtime/extras/optim/lambda_lr.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <vector>

namespace ddprun {
namespace {

using Rates = std::vector<double>;

// Two parameter groups with rates 0.1 and 0.03, as in the Python that printed the expected numbers.
torch::optim::SGD MakeOptimizer() {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const double lr : {0.1, 0.03}) {
    groups.emplace_back(std::vector<at::Tensor>{at::zeros({1}).requires_grad_()},
                        std::make_unique<torch::optim::SGDOptions>(lr));
  }
  return torch::optim::SGD(groups, torch::optim::SGDOptions(1));
}

std::vector<Rates> RatesOver(int steps, std::function<double(int64_t)> factor) {
  torch::optim::SGD optimizer = MakeOptimizer();
  LambdaLR scheduler(optimizer, std::move(factor));
  std::vector<Rates> rates = {scheduler.get_last_lr()};
  for (int i = 0; i < steps; ++i) {
    scheduler.step();
    rates.push_back(scheduler.get_last_lr());
  }
  return rates;
}

// torch.optim.lr_scheduler.LambdaLR of torch 2.11 with Transformers' formulas; 3 steps of warm-up, 10 in all.
TEST(LambdaLR, CosineWithWarmup_HasPythonsBits) {
  const std::vector<Rates> expected = {
      {0x0.0p+0, 0x0.0p+0},
      {0x1.1111111111111p-5, 0x1.47ae147ae147ap-7},
      {0x1.1111111111111p-4, 0x1.47ae147ae147ap-6},
      {0x1.999999999999ap-4, 0x1.eb851eb851eb8p-6},
      {0x1.8551843eaf1c7p-4, 0x1.d32e9eb19eeeep-6},
      {0x1.4c7d9f437f8bbp-4, 0x1.8efd258432a79p-6},
      {0x1.f4be9c700744dp-5, 0x1.2c725ddcd1294p-6},
      {0x1.3e7496c32bee7p-5, 0x1.7e2581b701847p-7},
      {0x1.346fe9586837fp-6, 0x1.721fe4d07d0fep-8},
      {0x1.448155aea7d34p-8, 0x1.8568006b2fca4p-10},
      {0, 0},
      {0, 0},  // Python's would rise again
  };
  EXPECT_EQ(RatesOver(11, CosineWithWarmup(3, 10)), expected);
}

TEST(LambdaLR, LinearWithWarmup_HasPythonsBits) {
  const std::vector<Rates> expected = {
      {0x0.0p+0, 0x0.0p+0},
      {0x1.1111111111111p-5, 0x1.47ae147ae147ap-7},
      {0x1.1111111111111p-4, 0x1.47ae147ae147ap-6},
      {0x1.999999999999ap-4, 0x1.eb851eb851eb8p-6},
      {0x1.5f15f15f15f16p-4, 0x1.a54d880bb3ee6p-6},
      {0x1.2492492492493p-4, 0x1.5f15f15f15f16p-6},
      {0x1.d41d41d41d41dp-5, 0x1.18de5ab277f44p-6},
      {0x1.5f15f15f15f16p-5, 0x1.a54d880bb3ee6p-7},
      {0x1.d41d41d41d41dp-6, 0x1.18de5ab277f44p-7},
      {0x1.d41d41d41d41dp-7, 0x1.18de5ab277f44p-8},
      {0, 0},
      {0, 0},
  };
  EXPECT_EQ(RatesOver(11, LinearWithWarmup(3, 10)), expected);
}

TEST(LambdaLR, MinFactor_IsWhereItStays) {
  const std::vector<Rates> rates = RatesOver(12, CosineWithWarmup(0, 10, 0.25));
  EXPECT_EQ(rates.front(), (Rates{0.1, 0.03}));
  EXPECT_EQ(rates[10], (Rates{0.1 * 0.25, 0.03 * 0.25}));
  EXPECT_EQ(rates[12], rates[10]);
  for (size_t i = 1; i <= 10; ++i) EXPECT_LT(rates[i][0], rates[i - 1][0]) << i;
}

TEST(LambdaLR, FactorOfTheTrainersOwn) {
  EXPECT_EQ(RatesOver(2, [](int64_t step) { return step == 2 ? 0.5 : 1.0; }),
            (std::vector<Rates>{{0.1, 0.03}, {0.1, 0.03}, {0.05, 0.015}}));
}

}  // namespace
}  // namespace ddprun
