#include "worker_runtime/extras/nn/nan_detector.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <limits>

#include "tests/worker_runtime/testing/ranks.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/extras/nn/nan_in_forward.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Two layers. With `roots` a square root of 0, whose derivative is infinite, is between them.
struct Net : torch::nn::Module {
  Net()
      : first(register_module("first", torch::nn::Linear(3, 3))),
        second(register_module("second", torch::nn::Linear(3, 1))) {}
  at::Tensor forward(const at::Tensor& input, bool roots) {
    at::Tensor hidden = first->forward(input);
    if (roots) hidden = (hidden - hidden.detach()).sqrt();
    return second->forward(hidden);
  }
  torch::nn::Linear first, second;
};

struct Step {
  int rank = 1;                  // that has the fault
  float input = 1;               // of that rank
  bool roots = false;            // on that rank
  bool bad_parameter = false;    // on all
  bool accumulate_first = true;  // the bad backward is under no_sync, and a good one follows
};

// Error of Check for `step` after two good steps; it must be the same on all ranks.
std::string CheckOf(const Step& step, int ranks = 3) {
  std::string message;
  ExpectRanksSucceed(ranks, [&](int rank, Group group) {
    auto net = std::make_shared<Net>();
    auto ddp = MakeDistributedDataParallel(net, group);
    NanDetector detector(net);
    const at::Tensor input = at::ones({2, 3}), target = at::zeros({2, 1});
    const auto loss_of = [&](bool bad) {
      const float value = bad ? step.input : 1;
      return at::mse_loss((*ddp)->forward(input * value, bad && step.roots), target);
    };
    for (int good = 0; good < 2; ++good) {
      const at::Tensor loss = loss_of(false);
      loss.backward();
      EXPECT_EQ(detector.Check(loss, *group), absl::OkStatus());
    }
    if (step.bad_parameter) net->second->bias.detach().fill_(kNan);
    at::Tensor loss;
    if (step.accumulate_first) {
      auto no_sync = (*ddp)->no_sync();
      loss = loss_of(rank == step.rank);
      loss.backward();
      loss_of(false).backward();
    } else {
      loss = loss_of(rank == step.rank);
      loss.backward();
      // The all-reduce makes the gradients NaN on all ranks, which is why hooks are needed.
      EXPECT_FALSE(net->first->weight.grad().isfinite().all().item<bool>());
    }
    const absl::Status status = detector.Check(loss, *group);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    if (rank == 0) message = std::string(status.message());
    EXPECT_EQ(group->BroadcastText(std::string(status.message())).value(), status.message());
  });
  return message;
}

TEST(NanDetector, LossOfOneRank_NamesTheRank) {
  EXPECT_THAT(CheckOf({.rank = 2, .input = kNan, .accumulate_first = false}),
              HasSubstr("not finite on rank 2: the loss is nan although all parameters are finite"));
}

TEST(NanDetector, GradientOfOneRank_NamesTheFirstParameterInBackward) {
  for (const bool accumulate_first : {false, true}) {
    const std::string message = CheckOf({.rank = 1, .roots = true, .accumulate_first = accumulate_first});
    EXPECT_THAT(message, HasSubstr("not finite on rank 1: the gradient of parameter \"first."));
    EXPECT_THAT(message, HasSubstr("although the loss ("));
  }
}

TEST(NanDetector, Parameter_IsNamedBeforeTheLoss) {
  EXPECT_THAT(CheckOf({.bad_parameter = true}), HasSubstr("not finite on rank 0: parameter \"second.bias\" is not"));
}

TEST(NanDetector, ParametersOutliveIt) {
  torch::nn::Linear net(2, 1);
  { NanDetector detector(net); }
  net->forward(at::ones({1, 2})).sum().backward();
  EXPECT_TRUE(at::equal(net->weight.grad(), at::ones({1, 2})));
}

// ---- NanInForward ----

TEST(NanInForward, NamesTheOperatorAndTheParameterBefore) {
  Net net;
  const std::string text = NanInForward(net, [&] {
    net.second->forward(-net.first->forward(at::ones({2, 3})).abs().log());
  });
  EXPECT_THAT(text, HasSubstr("no operator of forward gave NaN"));
  net.first->weight.detach().fill_(-1);
  EXPECT_EQ(
      NanInForward(net,
                   [&] {
                     net.second->forward((net.first->forward(at::ones({2, 3})) - 10).log().exp());
                   }),
      "aten::log gave NaN (shape [2, 3]) for inputs without NaN (shapes [2, 3]); the last parameter used before is "
      "\"first.bias\"");
}

TEST(NanInForward, InfiniteMaskAndUninitializedMemory_AreFine) {
  at::globalContext().setDeterministicAlgorithms(true, false);  // fills uninitialized memory with NaN
  EXPECT_THAT(NanInForward(Net(),
                           [] {
                             EXPECT_TRUE(at::empty({1000}).isnan().all().item<bool>());
                             at::zeros({2, 2}).masked_fill(at::ones({2, 2}).triu(1) == 1, -INFINITY).softmax(1);
                           }),
              HasSubstr("no operator of forward gave NaN"));
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST(NanInForward, BatchHasNan_NoOperatorIsBlamed) {
  Net net;
  const at::Tensor batch = at::full({2, 3}, kNan);
  EXPECT_THAT(NanInForward(net, [&] { net.forward(batch, false); }),
              HasSubstr("the batch or a parameter contains NaN"));
}

TEST(NanInForward, ForwardThrows_NobodyWatchesAfterwards) {
  Net net;
  EXPECT_THROW(NanInForward(net, [&] { net.first->forward(at::ones({2, 7})); }), c10::Error);
  EXPECT_FALSE(at::hasThreadLocalCallbacks());
}

}  // namespace
}  // namespace ddprun::testing
