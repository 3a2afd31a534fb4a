#include "worker_runtime/extras/optim/zero_redundancy_optimizer.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "tests/worker_runtime/ddp/small_models.h"
#include "tests/worker_runtime/testing/ranks.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/extras/optim/adamw.h"
#include "worker_runtime/extras/optim/lambda_lr.h"
#include "worker_runtime/process_group/values.h"

namespace ddprun::testing {
namespace {

using torch::nn::Linear;
using torch::optim::AdamWOptions;
using torch::optim::Optimizer;
using ParamGroup = torch::optim::OptimizerParamGroup;
using Groups = std::vector<ParamGroup>;
using Factory = ZeroRedundancyOptimizer::Factory;

std::unique_ptr<Optimizer> MakeAdamW(const Groups& groups) {
  return std::make_unique<AdamW>(groups, AdamWOptions(0.02).weight_decay(0.1));
}
std::unique_ptr<Optimizer> MakeSgd(const Groups& groups) {
  return std::make_unique<torch::optim::SGD>(groups, torch::optim::SGDOptions(0.05).momentum(0.9));
}

std::shared_ptr<torch::nn::SequentialImpl> MakeNet() {
  auto net = std::make_shared<torch::nn::SequentialImpl>(Linear(7, 16), torch::nn::Tanh(), Linear(16, 9),
                                                         torch::nn::Tanh(), Linear(9, 3));
  Fill(*net);
  return net;
}

// Weights, and biases with different options.
Groups TwoGroups(const torch::nn::Module& net) {
  std::vector<at::Tensor> weights, biases;
  for (const at::Tensor& parameter : net.parameters()) (parameter.dim() > 1 ? weights : biases).push_back(parameter);
  Groups groups;
  groups.emplace_back(std::move(weights));
  groups.emplace_back(std::move(biases), std::make_unique<AdamWOptions>(AdamWOptions(0.01).weight_decay(0)));
  return groups;
}

std::vector<at::Tensor> Train(Group group, std::shared_ptr<torch::nn::SequentialImpl> net, Optimizer& optimizer) {
  auto ddp = MakeDistributedDataParallel(net, group);
  LambdaLR scheduler(optimizer, CosineWithWarmup(2, 8));
  for (int step = 0; step < 6; ++step) {
    (*ddp)->forward(Inputs(step, group->rank())).square().mean().backward();
    optimizer.step();
    optimizer.zero_grad();
    scheduler.step();
  }
  return net->parameters();
}

int64_t StateBytes(Optimizer& optimizer) {
  int64_t bytes = 0;
  for (const auto& [parameter, state] : optimizer.state()) {
    const auto& moments = static_cast<const torch::optim::AdamWParamState&>(*state);
    bytes += static_cast<int64_t>(moments.exp_avg().nbytes() + moments.exp_avg_sq().nbytes());
  }
  return bytes;
}

// Error that the body throws, without LibTorch's stack trace.
std::string ErrorOf(absl::FunctionRef<void()> body) {
  return std::string(TorchTry("", [&] {
                       body();
                       return absl::OkStatus();
                     }).message());
}

void ExpectSameBits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << "parameter " << i;
}

TEST(ZeroRedundancyOptimizer, AdamW_TwoGroupsAndSchedule_BitsOfTheUnsharded_EachStateOnce) {
  for (const int n : {1, 2, 3, 4}) {
    ExpectRanksSucceed(n, [n](int rank, Group group) -> absl::Status {
      const auto expected = MakeNet(), net = MakeNet();
      const std::unique_ptr<Optimizer> whole = MakeAdamW(TwoGroups(*expected));
      ZeroRedundancyOptimizer sharded(group, TwoGroups(*net), MakeAdamW);
      ExpectSameBits(Train(group, expected, *whole), Train(group, net, sharded));

      size_t own = 0;
      int64_t own_bytes = 0;
      for (const at::Tensor& parameter : net->parameters()) {
        const bool kept = sharded.state().count(parameter.unsafeGetTensorImpl()) > 0;
        EXPECT_EQ(kept, sharded.OwnerOf(parameter) == rank) << n;
        if (!kept) continue;
        ++own;
        own_bytes += 2 * static_cast<int64_t>(parameter.nbytes());
      }
      EXPECT_EQ(sharded.state().size(), own);
      EXPECT_EQ(StateBytes(sharded), own_bytes);
      const absl::StatusOr<int64_t> all = AllReduceValue(*group, own_bytes);
      EXPECT_EQ(all.value_or(0), StateBytes(*whole));
      return all.status();
    });
  }
}

TEST(ZeroRedundancyOptimizer, SgdWithMomentum_BitsOfTheUnsharded) {
  for (const int n : {2, 3}) {
    ExpectRanksSucceed(n, [](int, Group group) {
      const auto expected = MakeNet(), net = MakeNet();
      const std::unique_ptr<Optimizer> whole = MakeSgd({ParamGroup(expected->parameters())});
      ZeroRedundancyOptimizer sharded(group, net->parameters(), MakeSgd);
      ExpectSameBits(Train(group, expected, *whole), Train(group, net, sharded));
    });
  }
}

// Partition by ZeroRedundancyOptimizer of torch 2.11 for these shapes.
TEST(ZeroRedundancyOptimizer, Partition_IsPythons) {
  const std::map<int, std::vector<int>> expected = {{1, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
                                                    {2, {1, 1, 1, 0, 1, 1, 0, 1, 0, 0}},
                                                    {3, {1, 2, 1, 0, 2, 2, 1, 2, 1, 1}},
                                                    {4, {1, 2, 3, 0, 3, 1, 3, 2, 1, 3}}};
  for (const auto& [n, owners] : expected) {
    const std::vector<int>* const of_python = &owners;
    ExpectRanksSucceed(n, [of_python](int, Group group) {
      const std::vector<std::vector<std::vector<int64_t>>> shapes = {{{4, 3}, {12}, {7}, {20, 2}, {5}, {1}},
                                                                     {{6}, {40}, {3, 2}, {2}}};
      Groups groups;
      std::vector<at::Tensor> all;
      for (const auto& of_group : shapes) {
        std::vector<at::Tensor> parameters;
        for (const std::vector<int64_t>& shape : of_group) parameters.push_back(at::zeros(shape));
        all.insert(all.end(), parameters.begin(), parameters.end());
        groups.emplace_back(std::move(parameters));
      }
      ZeroRedundancyOptimizer optimizer(group, groups, MakeSgd);
      std::vector<int> owners;
      for (const at::Tensor& parameter : all) owners.push_back(optimizer.OwnerOf(parameter));
      EXPECT_EQ(owners, *of_python);
    });
  }
}

// Without DistributedDataParallel, the owner's values must arrive in every element of the others.
TEST(ZeroRedundancyOptimizer, LargeMixedAndStridedParameters_ComeFromTheirOwners) {
  ExpectRanksSucceed(3, [](int rank, Group group) {
    std::vector<at::Tensor> parameters = {at::zeros({3 << 20})};  // 12 MiB: more than is sent at once
    for (int i = 0; i < 30; ++i) parameters.push_back(at::zeros({i % 3 == 0 ? 300000 : 11, 1}));
    parameters.push_back(at::zeros({5, 4}, at::kDouble));
    parameters.push_back(at::zeros({2, 70, 3}).transpose(0, 2));
    parameters.push_back(at::zeros({3000, 1001}).t());  // in a message of its own
    ZeroRedundancyOptimizer optimizer(group, parameters, MakeSgd);
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].mutable_grad() = at::full_like(parameters[i], -20.0 * static_cast<double>(rank + 1));
    }
    optimizer.step();
    for (const at::Tensor& parameter : parameters) {
      const double expected = optimizer.OwnerOf(parameter) + 1;
      EXPECT_TRUE(at::equal(parameter, at::full_like(parameter, expected))) << parameter.sizes();
    }
  });
}

TEST(ZeroRedundancyOptimizer, AddParamGroup_KeepsOwners_StepsTheNewOnes) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    std::vector<at::Tensor> first = {at::zeros({4}), at::zeros({3}), at::zeros({2})}, second = {at::zeros({5})};
    ZeroRedundancyOptimizer optimizer(group, first, MakeSgd);
    std::vector<int> owners;
    for (const at::Tensor& parameter : first) owners.push_back(optimizer.OwnerOf(parameter));
    EXPECT_EQ(owners, (std::vector<int>{0, 1, 1}));
    optimizer.add_param_group(
        ParamGroup(second, std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(0.5))));
    for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(optimizer.OwnerOf(first[i]), owners[i]);
    EXPECT_EQ(optimizer.OwnerOf(second[0]), 0);
    EXPECT_EQ(optimizer.param_groups().size(), 2u);
    second[0].mutable_grad() = at::full({5}, rank == 0 ? -2.0 : -4.0);
    optimizer.step();
    EXPECT_TRUE(at::equal(second[0], at::ones({5})));

    static_cast<Optimizer&>(optimizer).add_param_group(ParamGroup({at::zeros({1})}));
    EXPECT_EQ(ErrorOf([&] { optimizer.step(); }),
              "ZeroRedundancyOptimizer: parameter groups were added through a pointer to the base class, whose "
              "add_param_group is not virtual");
  });
}

TEST(ZeroRedundancyOptimizer, Closure_IsCalled_StateStaysAfterAnException) {
  ExpectRanksSucceed(2, [](int, Group group) {
    const std::vector<at::Tensor> parameters = {at::ones({2}).requires_grad_(), at::ones({2}).requires_grad_()};
    ZeroRedundancyOptimizer optimizer(group, parameters, MakeAdamW);
    const at::Tensor loss = optimizer.step([&] {
      optimizer.zero_grad();
      at::Tensor sum = parameters[0].sum() + parameters[1].sum();
      sum.backward();
      return sum;
    });
    EXPECT_EQ(loss.item<double>(), 4);
    EXPECT_EQ(optimizer.state().size(), 1u);
    const std::string error = ErrorOf([&] { optimizer.step([]() -> at::Tensor { TORCH_CHECK(false, "no loss"); }); });
    EXPECT_EQ(error, "no loss");
    EXPECT_EQ(optimizer.state().size(), 1u);
  });
}

TEST(ZeroRedundancyOptimizer, OwnerIsGone_StepEndsWithAnErrorThatNamesRankAndOperation) {
  absl::Status seen;
  absl::Notification made;
  RunRanks(2, [&seen, &made](int rank, Group group) -> absl::Status {
    const std::vector<at::Tensor> parameters = {at::zeros({4}), at::zeros({4})};
    ZeroRedundancyOptimizer optimizer(group, parameters, MakeSgd);
    if (rank == 1) {
      made.WaitForNotification();
      return absl::InternalError("gave up");
    }
    made.Notify();
    seen = group->Try("training", [&] {
      optimizer.step();
      return absl::OkStatus();
    });
    return seen;
  }).IgnoreError();
  EXPECT_TRUE(absl::IsAborted(seen)) << seen;
  EXPECT_TRUE(absl::StartsWith(seen.message(), "rank 0: training: ")) << seen;
}

TEST(ZeroRedundancyOptimizer, ParametersDiffer_SameErrorOnAllRanks) {
  ExpectRanksSucceed(3, [](int rank, Group group) {
    const std::vector<at::Tensor> parameters = {at::zeros({4}), at::zeros({rank == 2 ? 5 : 3})};
    EXPECT_EQ(ErrorOf([&] { ZeroRedundancyOptimizer(group, parameters, MakeSgd); }),
              "parameter \"param_groups[0].params[1]\" has shape [3] on rank 0 and [5] on rank 2; build the same model "
              "in the same order on all ranks");
  });
}

TEST(ZeroRedundancyOptimizer, WhatItCanNotTake_Throws) {
  ExpectRanksSucceed(1, [](int, Group group) {
    const at::Tensor one = at::zeros({2, 3}), other = at::zeros({4});
    EXPECT_EQ(ErrorOf([&] {
                ZeroRedundancyOptimizer(group, {one, other, one}, MakeSgd);
              }),
              "ZeroRedundancyOptimizer: parameters 0 and 2 are the same tensor, of shape [2, 3], and would be stepped "
              "twice; pass each parameter once (tied weights: ddprun::Parameters(module) instead of "
              "module->parameters())");
    EXPECT_EQ(
        ErrorOf([&] { ZeroRedundancyOptimizer(group, {one}, [](const Groups&) { return nullptr; }); }),
        "ZeroRedundancyOptimizer: the factory must return an optimizer with the 1 parameter groups that it is given");
    ZeroRedundancyOptimizer optimizer(group, {one}, MakeSgd);
    EXPECT_EQ(ErrorOf([&] { optimizer.OwnerOf(other); }), "not a parameter of this ZeroRedundancyOptimizer");
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace ddprun::testing
