#include "worker_runtime/extras/nn/linear.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/utils.h>

namespace ddprun {
namespace {

TEST(LinearTest, NamesAndInitialisation_AreTheStockOnes) {
  torch::manual_seed(3);
  Linear own(6, 4);
  torch::manual_seed(3);
  torch::nn::Linear stock(6, 4);
  ASSERT_EQ(own->named_parameters().keys(), stock->named_parameters().keys());
  for (const auto& parameter : own->named_parameters()) {
    EXPECT_TRUE(at::equal(parameter.value(), stock->named_parameters()[parameter.key()])) << parameter.key();
  }
  EXPECT_EQ(Linear(torch::nn::LinearOptions(6, 4).bias(false))->parameters().size(), 1);
}

TEST(LinearTest, Forward_IsAtLinear) {
  Linear linear(6, 4);
  const at::Tensor x = at::randn({2, 5, 6});
  EXPECT_TRUE(at::equal(linear(x), at::linear(x, linear->weight, linear->bias)));
  torch::nn::Sequential sequential(linear);
  EXPECT_TRUE(at::equal(sequential->forward(x), linear(x)));
}

TEST(LinearTest, Clone_IsOfTheSameTypeWithItsOwnParameters) {
  Linear linear(6, 4);
  linear->bias.set_requires_grad(false);
  linear->eval();
  const std::shared_ptr<torch::nn::Module> copy = linear->clone();
  auto* own = copy->as<LinearImpl>();
  ASSERT_NE(own, nullptr);
  EXPECT_TRUE(at::equal(own->weight, linear->weight));
  EXPECT_FALSE(own->weight.is_alias_of(linear->weight));
  EXPECT_TRUE(own->weight.requires_grad());
  EXPECT_FALSE(own->bias.requires_grad());
  EXPECT_FALSE(own->is_training());
}

}  // namespace
}  // namespace ddprun
