#include "worker_runtime/extras/amp.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "tests/worker_runtime/testing/ranks.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/extras/optim.h"
#include "worker_runtime/state/training_state.h"

namespace ddprun::testing {
namespace {

using torch::optim::AdamWOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;

constexpr c10::DeviceType kCpu = c10::DeviceType::CPU;

at::ScalarType DtypeOfProduct() { return at::mm(at::ones({2, 2}), at::ones({2, 2})).scalar_type(); }

TEST(AutocastTest, Guard_Nested_InnermostDtypeApplies) {
  {
    const Autocast outer(kCpu);
    EXPECT_EQ(DtypeOfProduct(), at::kBFloat16);
    const at::Tensor product = at::mm(at::ones({2, 2}), at::ones({2, 2}));
    EXPECT_EQ(at::mse_loss(product, at::ones({2, 2})).scalar_type(), at::kFloat);
    {
      const Autocast inner(kCpu, at::kHalf);
      EXPECT_EQ(DtypeOfProduct(), at::kHalf);
      const Autocast off(kCpu, std::nullopt, /*enabled=*/false);
      EXPECT_EQ(DtypeOfProduct(), at::kFloat);
    }
    EXPECT_EQ(DtypeOfProduct(), at::kBFloat16);
  }
  EXPECT_EQ(DtypeOfProduct(), at::kFloat);
  const Autocast again(kCpu);
  EXPECT_EQ(DtypeOfProduct(), at::kBFloat16) << "the default is what it was";
}

TEST(AutocastTest, Guard_ParameterChanges_CastIsCachedUntilOutermostEnds) {
  const at::Tensor x = at::ones({2, 2});
  at::Tensor weight = at::ones({2, 2}).requires_grad_();
  const auto double_weight = [&] {
    const at::NoGradGuard no_grad;
    weight.mul_(2);
  };
  at::Tensor first;
  {
    const Autocast outer(kCpu);
    first = at::mm(x, weight);
    double_weight();
    { const Autocast inner(kCpu); }
    EXPECT_TRUE(at::equal(at::mm(x, weight), first)) << "as in Python: a parameter is cast once";
  }
  const Autocast next(kCpu);
  EXPECT_TRUE(at::equal(at::mm(x, weight), first * 2));
}

TEST(AutocastTest, Constructor_UnsupportedDtypeOrDevice_Throws) {
  EXPECT_THROW(Autocast(kCpu, at::kFloat), c10::ValueError);
  EXPECT_THROW(Autocast(c10::DeviceType::Vulkan), c10::ValueError);
  EXPECT_EQ(DtypeOfProduct(), at::kFloat);
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

at::Tensor Weight() { return (at::arange(6).to(at::kFloat) / 7).requires_grad_(); }

// Gradients differ between values and steps; they overflow if `factor` is infinite.
void Backward(const at::Tensor& weight, GradScaler* scaler, int step, float factor = 1) {
  weight.mutable_grad().reset();
  const at::Tensor loss = (weight * weight * at::arange(6).add(step).to(at::kFloat)).sum() * factor;
  (scaler != nullptr ? scaler->Scale(loss) : loss).backward();
}

// Runs an iteration; returns true if the optimizer stepped.
bool Iterate(GradScaler& scaler, torch::optim::Optimizer& optimizer, const at::Tensor& weight, int step,
             float factor = 1) {
  Backward(weight, &scaler, step, factor);
  const bool stepped = scaler.Step(optimizer);
  scaler.Update();
  return stepped;
}

// Scaling by a power of two does not change the mantissa of a float.
TEST(GradScalerTest, Step_AnyOptimizer_EqualsStepWithoutScaling) {
  using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(const at::Tensor&)>;
  std::vector<Make> kinds = {[](const at::Tensor& weight) {
    return std::make_unique<SGD>(std::vector<at::Tensor>{weight}, SGDOptions(0.01).momentum(0.9));
  }};
  for (const AdamWKernel kernel : {AdamWKernel::kLoop, AdamWKernel::kForeach, AdamWKernel::kFused}) {
    kinds.push_back([kernel](const at::Tensor& weight) {
      return std::make_unique<AdamW>(std::vector<at::Tensor>{weight}, AdamWOptions(0.01), kernel);
    });
  }
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    for (const bool unscale : {false, true}) {
      const at::Tensor plain = Weight(), scaled = Weight();
      const auto optimizer_of_plain = kinds[kind](plain), optimizer = kinds[kind](scaled);
      GradScaler scaler({.growth_interval = 2});
      for (int step = 0; step < 5; ++step) {
        Backward(plain, nullptr, step);
        optimizer_of_plain->step();
        Backward(scaled, &scaler, step);
        if (unscale) {
          scaler.Unscale(*optimizer);
          EXPECT_TRUE(at::equal(scaled.grad(), plain.grad()));
        }
        EXPECT_TRUE(scaler.Step(*optimizer));
        EXPECT_TRUE(at::equal(scaled.grad(), plain.grad())) << "gradients are left unscaled";
        scaler.Update();
      }
      EXPECT_TRUE(at::equal(scaled, plain)) << "optimizer " << kind << ", Unscale " << unscale;
      EXPECT_EQ(scaler.scale(), 4 * 65536);
    }
  }
}

TEST(GradScalerTest, Step_Overflow_SkipsAndBacksOffThenGrows) {
  for (const AdamWKernel kernel : {AdamWKernel::kLoop, AdamWKernel::kFused}) {
    const at::Tensor weight = Weight();
    AdamW optimizer({weight}, AdamWOptions(0.01), kernel);
    GradScaler scaler({.init_scale = 1000, .growth_factor = 3, .backoff_factor = 0.25, .growth_interval = 2});
    EXPECT_TRUE(Iterate(scaler, optimizer, weight, 0));
    EXPECT_EQ(scaler.growth_tracker(), 1);
    const at::Tensor before = weight.detach().clone();
    const at::Tensor moment = optimizer.StateOf(weight).exp_avg().clone();
    EXPECT_FALSE(Iterate(scaler, optimizer, weight, 1, kInfinity));
    EXPECT_TRUE(at::equal(weight, before));
    EXPECT_TRUE(at::equal(optimizer.StateOf(weight).exp_avg(), moment));
    EXPECT_EQ(optimizer.StateOf(weight).step(), 1);
    EXPECT_EQ(scaler.scale(), 250);
    EXPECT_EQ(scaler.growth_tracker(), 0);
    EXPECT_TRUE(Iterate(scaler, optimizer, weight, 2));
    EXPECT_EQ(scaler.scale(), 250);
    EXPECT_TRUE(Iterate(scaler, optimizer, weight, 3));
    EXPECT_EQ(scaler.scale(), 750);
    EXPECT_EQ(optimizer.StateOf(weight).step(), 3);
  }
}

TEST(GradScalerTest, Unscale_ThenClip_ClipsToTheNorm) {
  const at::Tensor weight = Weight();
  SGD optimizer({weight}, SGDOptions(1));
  GradScaler scaler;
  Backward(weight, &scaler, 0);
  scaler.Unscale(optimizer);
  torch::nn::utils::clip_grad_norm_(weight, 0.5);
  const at::Tensor expected = weight.detach() - weight.grad();
  EXPECT_NEAR(weight.grad().norm().item<double>(), 0.5, 1e-5);
  EXPECT_TRUE(scaler.Step(optimizer));
  EXPECT_TRUE(at::equal(weight, expected));
}

TEST(GradScalerTest, Step_TwoOptimizers_SkipsOnlyTheOneThatOverflowed) {
  const at::Tensor a = Weight(), b = Weight();
  SGD of_a({a}, SGDOptions(0.01)), of_b({b}, SGDOptions(0.01));
  GradScaler scaler;
  Backward(a, &scaler, 0, kInfinity);
  Backward(b, &scaler, 0);
  EXPECT_FALSE(scaler.Step(of_a));
  EXPECT_TRUE(scaler.Step(of_b));
  scaler.Update();
  EXPECT_EQ(scaler.scale(), 32768);
}

TEST(GradScalerTest, Step_NotEnabled_EqualsStepWithoutScaler) {
  const at::Tensor plain = Weight(), weight = Weight();
  SGD of_plain({plain}, SGDOptions(0.01)), optimizer({weight}, SGDOptions(0.01));
  GradScaler scaler({.enabled = false});
  Backward(plain, nullptr, 0);
  of_plain.step();
  Backward(weight, &scaler, 0);
  scaler.Unscale(optimizer);
  EXPECT_TRUE(scaler.Step(optimizer));
  scaler.Update();
  EXPECT_TRUE(at::equal(weight, plain));
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_EQ(scaler.State(), "");
}

TEST(GradScalerTest, AnyMethod_WrongOrder_Throws) {
  const at::Tensor weight = Weight();
  SGD optimizer({weight}, SGDOptions(0.01));
  GradScaler scaler;
  EXPECT_THROW(scaler.Step(optimizer), c10::Error) << "no loss was scaled";
  Backward(weight, &scaler, 0);
  EXPECT_THROW(scaler.Update(), c10::Error) << "before Step";
  scaler.Unscale(optimizer);
  EXPECT_THROW(scaler.Unscale(optimizer), c10::Error) << "twice";
  scaler.Step(optimizer);
  EXPECT_THROW(scaler.Step(optimizer), c10::Error) << "twice";
  EXPECT_THROW(scaler.Unscale(optimizer), c10::Error) << "after Step";
  scaler.Update();
  weight.mutable_grad().reset();
  EXPECT_THROW(scaler.Step(optimizer), c10::Error) << "no gradients";
  EXPECT_THROW(GradScaler({.growth_factor = 1}), c10::ValueError);
  EXPECT_THROW(GradScaler({.backoff_factor = 1}), c10::ValueError);
}

TEST(GradScalerTest, Unscale_GradientsInHalf_Throws) {
  const at::Tensor weight = at::ones({6}, at::kHalf).requires_grad_();
  SGD optimizer({weight}, SGDOptions(0.01));
  GradScaler scaler({.init_scale = 8});
  Backward(weight, &scaler, 0);
  EXPECT_THROW(scaler.Unscale(optimizer), c10::ValueError);
}

struct Net : torch::nn::Module {
  Net() { weight = register_parameter("weight", Weight()); }
  at::Tensor forward(const at::Tensor& x) { return (x * weight).sum(); }

  at::Tensor weight;
};

TEST(GradScalerTest, Step_OverflowOfOneDdpRank_SkipsOnAllRanks) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    auto net = std::make_shared<Net>();
    auto ddp = MakeDistributedDataParallel(net, group);
    AdamW optimizer({net->weight}, AdamWOptions(0.01));
    GradScaler scaler;
    const auto iterate = [&](float value) {
      (*ddp)->zero_grad();
      scaler.Scale((*ddp)->forward(at::full({6}, value))).backward();
      const bool stepped = scaler.Step(optimizer);
      scaler.Update();
      return stepped;
    };
    EXPECT_TRUE(iterate(rank + 1));
    EXPECT_FALSE(iterate(rank == 1 ? kInfinity : 1));
    EXPECT_EQ(scaler.scale(), 32768);
  });
}

TEST(GradScalerTest, SetState_RollbackAndBroadcast_KeepsTheBits) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    Net net;
    SGD optimizer({net.weight}, SGDOptions(0.01));
    TrainingState state(net, &optimizer);
    // Not a power of two, and more digits than a short text holds.
    GradScaler scaler({.init_scale = 1000.0 / 3, .growth_factor = 1.1, .growth_interval = 3});
    EXPECT_EQ(state.AddScaler(scaler), absl::OkStatus());
    EXPECT_EQ(state.AddScaler(scaler), absl::OkStatus()) << "the same object again";
    GradScaler other;
    EXPECT_TRUE(absl::IsInvalidArgument(state.AddScaler(other))) << "the name is taken";
    for (int step = 0; step < (rank == 0 ? 5 : 1); ++step) Iterate(scaler, optimizer, net.weight, step);
    const float scale = scaler.scale();
    const int64_t tracker = scaler.growth_tracker();
    EXPECT_EQ(tracker, rank == 0 ? 2 : 1);

    state.Commit();
    Backward(net.weight, &scaler, 9, kInfinity);
    EXPECT_FALSE(scaler.Step(optimizer));
    scaler.Update();
    EXPECT_NE(scaler.scale(), scale);
    Backward(net.weight, &scaler, 9);
    scaler.Unscale(optimizer);  // the interrupted step
    EXPECT_EQ(state.Rollback(), absl::OkStatus());
    EXPECT_EQ(scaler.scale(), scale);
    EXPECT_EQ(scaler.growth_tracker(), tracker);
    EXPECT_TRUE(Iterate(scaler, optimizer, net.weight, 9)) << "Unscale is forgotten";

    EXPECT_EQ(state.Broadcast(*group, 0), absl::OkStatus());
    GradScaler twin({.init_scale = 1000.0 / 3, .growth_factor = 1.1, .growth_interval = 3});
    const at::Tensor weight = Weight();
    SGD of_twin({weight}, SGDOptions(0.01));
    for (int step = 0; step < 6; ++step) Iterate(twin, of_twin, weight, step);
    EXPECT_EQ(scaler.scale(), twin.scale());
    EXPECT_EQ(scaler.growth_tracker(), twin.growth_tracker());
    EXPECT_TRUE(absl::IsDataLoss(scaler.SetState("3")));
    EXPECT_TRUE(absl::IsDataLoss(scaler.SetState("x 3")));
  });
}

}  // namespace
}  // namespace ddprun::testing
