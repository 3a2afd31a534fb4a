#include "worker_runtime/extras/nn.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <memory>
#include <numeric>
#include <vector>

#include "tests/worker_runtime/testing/ranks.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"

namespace ddprun::testing {
namespace {

using Options = torch::nn::BatchNormOptions;

TEST(LinearTest, Constructor_SameSeed_EqualsTorchsLinear) {
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

TEST(LinearTest, Forward_ThreeDimensions_EqualsAtLinear) {
  Linear linear(6, 4);
  const at::Tensor x = at::randn({2, 5, 6});
  EXPECT_TRUE(at::equal(linear(x), at::linear(x, linear->weight, linear->bias)));
  torch::nn::Sequential sequential(linear);
  EXPECT_TRUE(at::equal(sequential->forward(x), linear(x)));
}

TEST(LinearTest, Clone_AnyModule_HasTheSameTypeAndOwnParameters) {
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

constexpr int64_t kChannels = 3;

// Pseudo-random numbers between -2 and 4.
at::Tensor Numbers(std::vector<int64_t> shape, int seed, at::ScalarType dtype = at::kDouble) {
  const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return (at::sin((at::arange(count, at::kDouble) + 17 * seed) * 12.9898) * 2 + seed % 3).view(shape).to(dtype);
}

bool Close(const at::Tensor& a, const at::Tensor& b) { return at::allclose(a, b, 1e-10, 1e-12); }

// Gives both modules the same new weights.
template <typename A, typename B>
void SetWeights(A& a, B& b) {
  const at::NoGradGuard no_grad;
  for (auto* module : std::initializer_list<torch::nn::Module*>{&a, &b}) {
    module->to(at::kDouble);
    int seed = 40;
    for (at::Tensor& parameter : module->parameters()) parameter.copy_(Numbers(parameter.sizes().vec(), ++seed));
  }
}

// Compares forward, backward and buffers of `steps` steps; `batches` are the batch sizes of the ranks.
template <typename Whole>
void ExpectAsOneProcess(const std::vector<int64_t>& batches, const std::vector<int64_t>& rest, const Options& options,
                        int steps = 1) {
  ExpectRanksSucceed(static_cast<int>(batches.size()), [&](int rank, Group group) {
    Whole whole(options);
    SyncBatchNormImpl synced(options, group);
    SetWeights(whole, synced);
    const int64_t total = std::accumulate(batches.begin(), batches.end(), int64_t{0});
    const int64_t begin = std::accumulate(batches.begin(), batches.begin() + rank, int64_t{0});
    for (int step = 0; step < steps; ++step) {
      std::vector<int64_t> shape = {total, kChannels};
      shape.insert(shape.end(), rest.begin(), rest.end());
      const at::Tensor inputs = Numbers(shape, 3 * step + 1), factors = Numbers(shape, 3 * step + 2);
      const auto own = [&](const at::Tensor& all) { return all.narrow(0, begin, batches[rank]).contiguous(); };

      const at::Tensor x = inputs.clone().requires_grad_();
      const at::Tensor y = whole.forward(x);
      (y * factors).sum().backward();
      const at::Tensor own_x = own(inputs).requires_grad_();
      const at::Tensor own_y = synced.forward(own_x);
      (own_y * own(factors)).sum().backward();

      EXPECT_TRUE(Close(own_y, own(y)));
      EXPECT_TRUE(Close(own_x.grad(), own(x.grad())));
    }
    for (const auto& parameter : synced.named_parameters()) {
      const at::Tensor gradient = parameter.value().grad().clone();
      EXPECT_EQ(group->AllReduce(gradient), absl::OkStatus());
      EXPECT_TRUE(Close(gradient, whole.named_parameters()[parameter.key()].grad())) << parameter.key();
    }
    EXPECT_EQ(synced.named_buffers().size(), whole.named_buffers().size());
    for (const auto& buffer : synced.named_buffers()) {
      if (!buffer.value().defined()) continue;
      EXPECT_TRUE(Close(buffer.value(), whole.named_buffers()[buffer.key()])) << buffer.key();
    }
    synced.eval();
    whole.eval();
    if (options.track_running_stats()) {
      const at::Tensor x = Numbers({4, kChannels, 2, 2}, 5);
      at::Tensor expected = at::batch_norm(x, whole.weight, whole.bias, whole.running_mean, whole.running_var, false, 0,
                                           options.eps(), false);
      EXPECT_TRUE(Close(synced.forward(x), expected));
    }
  });
}

TEST(SyncBatchNorm, Forward_UnevenBatches_EqualsBatchNormOfTheWhole) {
  ExpectAsOneProcess<torch::nn::BatchNorm1dImpl>({4, 1, 3}, {}, Options(kChannels));
  ExpectAsOneProcess<torch::nn::BatchNorm1dImpl>({2, 5}, {4}, Options(kChannels));
  ExpectAsOneProcess<torch::nn::BatchNorm2dImpl>({2, 3}, {2, 3}, Options(kChannels).eps(0.1), /*steps=*/3);
  ExpectAsOneProcess<torch::nn::BatchNorm3dImpl>({1, 2}, {2, 1, 2}, Options(kChannels).momentum(0.3), /*steps=*/2);
}

TEST(SyncBatchNorm, Forward_RankWithoutSamples_EqualsBatchNorm) {
  ExpectAsOneProcess<torch::nn::BatchNorm2dImpl>({3, 0, 2}, {2, 2}, Options(kChannels), /*steps=*/2);
}

TEST(SyncBatchNorm, Forward_AllOptions_EqualsBatchNorm) {
  ExpectAsOneProcess<torch::nn::BatchNorm2dImpl>({2, 3}, {2, 2}, Options(kChannels).momentum(std::nullopt), 3);
  ExpectAsOneProcess<torch::nn::BatchNorm2dImpl>({2, 3}, {2, 2}, Options(kChannels).affine(false), 2);
  ExpectAsOneProcess<torch::nn::BatchNorm2dImpl>({2, 3}, {2, 2}, Options(kChannels).track_running_stats(false), 2);
  ExpectAsOneProcess<torch::nn::BatchNorm2dImpl>({5}, {2, 2}, Options(kChannels), 2);
}

// Sums of squares would lose all digits of the variance.
TEST(SyncBatchNorm, Forward_LargeMeanInFloat_KeepsTheVariance) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    const at::Tensor inputs = Numbers({8, kChannels}, 1) + 10000;
    torch::nn::BatchNorm1d whole{Options(kChannels)};
    whole->to(at::kDouble);
    SyncBatchNorm synced(Options(kChannels), group);
    const at::Tensor y = synced->forward(inputs.narrow(0, 4 * rank, 4).to(at::kFloat));
    EXPECT_EQ(y.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::allclose(y.to(at::kDouble), whole->forward(inputs).narrow(0, 4 * rank, 4), 1e-2, 1e-2));
    const at::Tensor half = synced->forward(inputs.narrow(0, 4 * rank, 4).sub(10000).to(at::kBFloat16));
    EXPECT_EQ(half.scalar_type(), at::kBFloat16);
  });
}

TEST(SyncBatchNorm, Forward_InputOfAnotherShape_Throws) {
  ExpectRanksSucceed(1, [](int, Group group) {
    SyncBatchNorm synced(Options(kChannels), group);
    EXPECT_THROW(synced->forward(Numbers({kChannels}, 1)), c10::ValueError);
    EXPECT_THROW(synced->forward(Numbers({2, kChannels + 1}, 1)), c10::ValueError);
  });
}

TEST(SyncBatchNorm, Ddp_TwoRanks_TrainsLikeOneProcess) {
  using torch::nn::Linear;
  ExpectRanksSucceed(2, [](int rank, Group group) {
    auto model = std::make_shared<torch::nn::SequentialImpl>(
        Linear(4, kChannels), SyncBatchNorm(Options(kChannels), group), Linear(kChannels, 2));
    auto alone = std::make_shared<torch::nn::SequentialImpl>(
        Linear(4, kChannels), torch::nn::BatchNorm1d(Options(kChannels)), Linear(kChannels, 2));
    SetWeights(*model, *alone);
    auto ddp = *MakeDistributedDataParallel(model, group);
    const auto step = [](torch::nn::Module& module, const at::Tensor& loss) {
      for (at::Tensor& parameter : module.parameters()) parameter.mutable_grad().reset();
      loss.backward();
      const at::NoGradGuard no_grad;
      for (at::Tensor& parameter : module.parameters()) parameter.sub_(parameter.grad(), 0.01);
    };
    for (int i = 0; i < 5; ++i) {
      const at::Tensor x = Numbers({12, 4}, i), y = Numbers({12, 2}, i + 50);
      step(*model, (ddp->forward(x.narrow(0, 6 * rank, 6)) - y.narrow(0, 6 * rank, 6)).square().mean());
      step(*alone, (alone->forward(x) - y).square().mean());
    }
    for (const auto& item : alone->named_parameters()) {
      EXPECT_TRUE(Close(model->named_parameters()[item.key()], item.value())) << item.key();
    }
    for (const auto& item : alone->named_buffers()) {
      EXPECT_TRUE(Close(model->named_buffers()[item.key()], item.value())) << item.key();
    }
  });
}

}  // namespace
}  // namespace ddprun::testing
