#include "worker_runtime/extras/optim.h"

#include <ATen/Functions.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <cmath>
#include <sstream>
#include <vector>

#include "worker_runtime/base/parameters.h"

namespace ddprun::testing {
namespace {

using torch::optim::AdamWOptions;
using Rates = std::vector<double>;

constexpr AdamWKernel kKernels[] = {AdamWKernel::kLoop, AdamWKernel::kForeach, AdamWKernel::kFused};

std::vector<at::Tensor> TwoParameters(at::ScalarType dtype = at::kFloat) {
  torch::manual_seed(11);
  return {at::randn({3, 4}, dtype).requires_grad_(), at::randn({5}, dtype).requires_grad_()};
}

void SetGradients(const std::vector<at::Tensor>& parameters, int step) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].mutable_grad() = at::full_like(parameters[i], 0.1 * (step + 1) * (i % 2 == 0 ? 1 : -1)).detach();
  }
}

TEST(AdamWTest, Step_FirstOne_MovesByTheLearningRateAndDecays) {
  for (AdamWKernel kernel : kKernels) {
    at::Tensor parameter = at::full({2}, 2.0).requires_grad_();
    AdamW optimizer({parameter}, AdamWOptions(0.5).weight_decay(0.1), kernel);
    parameter.mutable_grad() = at::full({2}, 7.0);
    optimizer.step();
    EXPECT_TRUE(at::allclose(parameter, at::full({2}, 2.0 * (1 - 0.5 * 0.1) - 0.5)));
  }
}

TEST(AdamWTest, Step_AnyKernel_LoopEqualsForeachAndFusedIsClose) {
  for (const bool amsgrad : {false, true}) {
    std::vector<std::vector<at::Tensor>> results;
    for (AdamWKernel kernel : kKernels) {
      std::vector<at::Tensor> parameters = TwoParameters(at::kDouble);
      for (at::Tensor& other : TwoParameters(at::kFloat)) parameters.push_back(other);  // two dtypes in one group
      AdamW optimizer(parameters, AdamWOptions(0.01).amsgrad(amsgrad), kernel);
      for (int step = 0; step < 5; ++step) {
        SetGradients(parameters, step);
        optimizer.step();
      }
      results.push_back(parameters);
    }
    for (size_t i = 0; i < results[0].size(); ++i) {
      EXPECT_TRUE(at::equal(results[0][i], results[1][i]));
      EXPECT_TRUE(at::allclose(results[0][i], results[2][i]));
    }
  }
}

TEST(AdamWTest, Step_ParameterWithoutGradient_IsSkipped) {
  for (AdamWKernel kernel : kKernels) {
    std::vector<at::Tensor> parameters = TwoParameters();
    const at::Tensor before = parameters[1].detach().clone();
    AdamW optimizer(parameters, {}, kernel);
    SetGradients(parameters, 0);
    parameters[1].mutable_grad().reset();
    optimizer.step();
    EXPECT_TRUE(at::equal(parameters[1], before));
    SetGradients(parameters, 1);
    optimizer.step();
    EXPECT_EQ(optimizer.StateOf(parameters[0]).step(), 2);
    EXPECT_EQ(optimizer.StateOf(parameters[1]).step(), 1);
  }
}

TEST(AdamWTest, Step_TwoGroups_UsesEachGroupsOptions) {
  std::vector<at::Tensor> parameters = {at::ones({1}).requires_grad_(), at::ones({1}).requires_grad_()};
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{parameters[0]},
                      std::make_unique<AdamWOptions>(AdamWOptions(0.1).weight_decay(1)));
  groups.emplace_back(std::vector<at::Tensor>{parameters[1]});  // the defaults
  AdamW optimizer(groups, AdamWOptions(0.1).weight_decay(0));
  SetGradients(parameters, 0);
  ZeroGradients(parameters, /*set_to_none=*/false);
  optimizer.step();
  EXPECT_NEAR(parameters[0].item<double>(), 0.9, 1e-6);
  EXPECT_NEAR(parameters[1].item<double>(), 1, 1e-6);
  torch::optim::StepLR scheduler(optimizer, /*step_size=*/1, /*gamma=*/0.5);
  scheduler.step();  // the C++ frontend's first call changes nothing
  scheduler.step();
  EXPECT_NEAR(optimizer.param_groups()[0].options().get_lr(), 0.05, 1e-9);
  optimizer.step();
  EXPECT_NEAR(parameters[0].item<double>(), 0.9 * 0.95, 1e-6);
}

TEST(AdamWTest, StateOf_CopiedToAnotherOptimizer_ContinuesWithTheSameBits) {
  for (AdamWKernel kernel : kKernels) {
    std::vector<at::Tensor> whole = TwoParameters();
    AdamW uninterrupted(whole, AdamWOptions(0.01), kernel);
    std::vector<at::Tensor> resumed;
    for (int step = 0; step < 6; ++step) {
      SetGradients(whole, step);
      uninterrupted.step();
      if (step != 2) continue;
      for (const at::Tensor& parameter : whole) resumed.push_back(parameter.detach().clone().requires_grad_());
    }
    AdamW next(resumed, AdamWOptions(0.01), kernel);
    std::vector<at::Tensor> first = TwoParameters();
    AdamW source(first, AdamWOptions(0.01), kernel);
    for (int step = 0; step < 3; ++step) {
      SetGradients(first, step);
      source.step();
    }
    for (size_t i = 0; i < resumed.size(); ++i) {
      const auto& from = source.StateOf(first[i]);
      next.StateOf(resumed[i]).step(from.step());
      next.StateOf(resumed[i]).exp_avg(from.exp_avg().clone()).exp_avg_sq(from.exp_avg_sq().clone());
    }
    for (int step = 3; step < 6; ++step) {
      SetGradients(resumed, step);
      next.step();
    }
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(at::equal(whole[i], resumed[i]));
  }
}

TEST(AdamWTest, Archive_SaveAndLoad_KeepsState) {
  std::vector<at::Tensor> parameters = TwoParameters();
  AdamW optimizer(parameters, AdamWOptions(0.01));
  SetGradients(parameters, 0);
  optimizer.step();
  std::stringstream stream;
  torch::save(optimizer, stream);
  AdamW loaded(parameters, AdamWOptions(0.5));
  torch::load(loaded, stream);
  EXPECT_EQ(loaded.param_groups()[0].options().get_lr(), 0.01);
  EXPECT_EQ(loaded.StateOf(parameters[0]).step(), 1);
  EXPECT_TRUE(at::equal(loaded.StateOf(parameters[1]).exp_avg(), optimizer.StateOf(parameters[1]).exp_avg()));
}

TEST(AdamWTest, Step_WithClosure_RunsItWithGradients) {
  std::vector<at::Tensor> parameters = TwoParameters();
  AdamW optimizer(parameters);
  const at::Tensor loss = optimizer.step([&] {
    optimizer.zero_grad();
    at::Tensor result = parameters[0].square().sum();
    result.backward();
    return result;
  });
  EXPECT_TRUE(loss.defined());
  EXPECT_TRUE(parameters[0].grad().defined());
}

TEST(AdamWTest, AnyMethod_UnsupportedTensor_Throws) {
  std::vector<at::Tensor> parameters = TwoParameters();
  AdamW optimizer(parameters);
  EXPECT_THROW(optimizer.StateOf(at::ones({1})), c10::Error);
  parameters[1].mutable_grad() = parameters[1].detach().to_sparse();
  EXPECT_THROW(optimizer.step(), c10::Error);
}

TEST(AdamWTest, Constructor_ParameterGivenTwice_Throws) {
  const at::Tensor one = at::ones({2, 3}).requires_grad_(), other = at::ones({4}).requires_grad_();
  const auto error = [](auto make) -> std::string {
    try {
      make();
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
    return "";
  };
  const std::string text =
      "AdamW: parameters 0 and 2 are the same tensor, of shape [2, 3], and would be stepped twice; pass each parameter "
      "once (tied weights: ddprun::Parameters(module) instead of module->parameters())";
  EXPECT_EQ(error([&] { AdamW({one, other, one}); }), text);
  using Group = torch::optim::OptimizerParamGroup;
  EXPECT_EQ(error([&] { AdamW(std::vector<Group>{Group({one, other}), Group({one})}); }), text);
  AdamW optimizer({one, other});
  EXPECT_EQ(error([&] { optimizer.add_param_group(Group({one})); }), text);
  optimizer.add_param_group(Group({at::ones({1}).requires_grad_()}));
  EXPECT_EQ(optimizer.param_groups().size(), 2u);
}

// A tied embedding and output layer, as in a language model.
struct Tied : torch::nn::Module {
  Tied() {
    embedding = register_module("embedding", torch::nn::Embedding(8, 4));
    output = register_module("output", torch::nn::Linear(torch::nn::LinearOptions(4, 8).bias(false)));
    output->weight = output->register_parameter("tied", embedding->weight);
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Linear output{nullptr};
};

TEST(ParametersTest, Parameters_TiedWeight_ListsItOnce) {
  auto module = std::make_shared<Tied>();
  EXPECT_EQ(module->parameters().size(), 3u);
  const std::vector<at::Tensor> once = ddprun::Parameters(module);
  ASSERT_EQ(once.size(), 2u);
  EXPECT_TRUE(once[0].is_same(module->embedding->weight));
  EXPECT_EQ(ddprun::Parameters(*module).size(), 2u);
  EXPECT_EQ(ddprun::Parameters(torch::nn::Linear(2, 2)).size(), 2u);
  EXPECT_THROW(AdamW{module->parameters()}, c10::ValueError);

  module->embedding->weight.mutable_grad() = at::ones({8, 4});
  EXPECT_NEAR(torch::nn::utils::clip_grad_norm_(ddprun::Parameters(module), 100.0), std::sqrt(32.0), 1e-6);
  EXPECT_NEAR(torch::nn::utils::clip_grad_norm_(module->parameters(), 100.0), 8.0, 1e-6) << "why Parameters exists";
}

TEST(ZeroGradientsTest, ZeroGradients_BothWays_RemovesOrFillsInPlace) {
  std::vector<at::Tensor> parameters = TwoParameters();
  const at::Tensor bucket = at::ones({20});
  parameters[0].mutable_grad() = bucket.narrow(0, 0, 12).view({3, 4});
  ZeroGradients(parameters, /*set_to_none=*/false);
  EXPECT_TRUE(at::equal(bucket.narrow(0, 0, 12), at::zeros({12})));
  EXPECT_EQ(bucket[12].item<float>(), 1);
  EXPECT_FALSE(parameters[1].grad().defined());
  ZeroGradients(parameters);
  EXPECT_FALSE(parameters[0].grad().defined());
}

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
TEST(LambdaLR, Step_WarmupSchedules_EqualPythonBitForBit) {
  const std::vector<Rates> cosine = {
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
  const std::vector<Rates> linear = {
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
  EXPECT_EQ(RatesOver(11, CosineWithWarmup(3, 10)), cosine);
  EXPECT_EQ(RatesOver(11, LinearWithWarmup(3, 10)), linear);
}

TEST(LambdaLR, Step_MinFactor_StaysThere) {
  const std::vector<Rates> rates = RatesOver(12, CosineWithWarmup(0, 10, 0.25));
  EXPECT_EQ(rates.front(), (Rates{0.1, 0.03}));
  EXPECT_EQ(rates[10], (Rates{0.1 * 0.25, 0.03 * 0.25}));
  EXPECT_EQ(rates[12], rates[10]);
  for (size_t i = 1; i <= 10; ++i) EXPECT_LT(rates[i][0], rates[i - 1][0]) << i;
}

TEST(LambdaLR, Step_CustomFactor_SetsTheRates) {
  EXPECT_EQ(RatesOver(2, [](int64_t step) { return step == 2 ? 0.5 : 1.0; }),
            (std::vector<Rates>{{0.1, 0.03}, {0.1, 0.03}, {0.05, 0.015}}));
}

}  // namespace
}  // namespace ddprun::testing
