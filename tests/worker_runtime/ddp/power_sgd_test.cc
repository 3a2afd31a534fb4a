// tests/worker_runtime/parity compares the bits with Python.
#include "worker_runtime/ddp/power_sgd.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "tests/worker_runtime/testing/ranks.h"
#include "worker_runtime/base/status_macros.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"

namespace ddprun::testing {
namespace {

// The gradients of its weights are the arguments of forward.
struct Weights : torch::nn::Module {
  Weights() {
    matrix = register_parameter("matrix", at::zeros({16, 12}));
    vector = register_parameter("vector", at::zeros({5}));
  }
  at::Tensor forward(const at::Tensor& of_matrix, const at::Tensor& of_vector) {
    const at::Tensor first = (matrix * of_matrix).sum();
    return first + (vector * of_vector).sum();
  }

  at::Tensor matrix, vector;
};

at::Tensor Ramp(int64_t length, double from) { return at::arange(length).to(at::kFloat) + from; }

// Averaged gradients of each of `steps` iterations, which are compressed from the third on.
absl::StatusOr<std::vector<at::Tensor>> Average(Group group, const at::Tensor& of_matrix, int steps, bool feedback,
                                                PowerSgd::Stats* stats) {
  auto weights = std::make_shared<Weights>();
  DDPRUN_ASSIGN_OR_RETURN(auto ddp, MakeDistributedDataParallel(weights, group));
  DDPRUN_ASSIGN_OR_RETURN(auto power_sgd,
                          PowerSgd::Create({.start_power_sgd_iter = 2, .use_error_feedback = feedback}));
  DDPRUN_RETURN_IF_ERROR(ddp->RegisterCommHook(power_sgd->Hook()));
  std::vector<at::Tensor> averages;
  for (int step = 0; step < steps; ++step) {
    ddp->zero_grad();
    ddp->forward(of_matrix, Ramp(5, group->rank())).backward();
    averages.push_back(weights->matrix.grad().clone());
    EXPECT_TRUE(at::allclose(weights->vector.grad(), Ramp(5, 0.5))) << "vectors are not compressed";
  }
  *stats = power_sgd->compression_stats();
  return averages;
}

TEST(PowerSgdTest, GradientsOfRankOne_AreAveraged_WithFewerBytes) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    PowerSgd::Stats stats;
    const at::Tensor gradient = at::outer(Ramp(16, 1), Ramp(12, 3 * rank - 5));
    auto averages = *Average(group, gradient, 5, /*feedback=*/true, &stats);
    for (const at::Tensor& average : averages) {
      EXPECT_TRUE(at::allclose(average, at::outer(Ramp(16, 1), Ramp(12, -3.5)), 1e-4, 1e-3));
    }
    EXPECT_EQ(stats.bytes_before, 3 * 4 * (16 * 12 + 5));
    EXPECT_EQ(stats.bytes_after, 3 * 4 * (16 + 12 + 5));
  });
}

// With error feedback, the part that compression drops from a constant gradient is sent later.
TEST(PowerSgdTest, ErrorFeedback_SendsTheRestLater) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    const at::Tensor gradient = ((Ramp(192, 7 * rank) * 37).remainder(11) - 5).view({16, 12});
    const at::Tensor other = ((Ramp(192, 7 * (1 - rank)) * 37).remainder(11) - 5).view({16, 12});
    const at::Tensor expected = (gradient + other) / 2;
    double distance[2];
    for (const bool feedback : {false, true}) {
      PowerSgd::Stats stats;
      auto averages = *Average(group, gradient, 62, feedback, &stats);
      at::Tensor sum = at::zeros({16, 12});
      for (int step = 2; step < 62; ++step) sum += averages[step];
      distance[feedback] = ((sum / 60 - expected).norm() / expected.norm()).item<double>();
    }
    EXPECT_GT(distance[false], 0.5);
    EXPECT_LT(distance[true], 0.2);
  });
}

TEST(PowerSgdTest, OptionsOutOfRange_InvalidArgument) {
  EXPECT_TRUE(absl::IsInvalidArgument(PowerSgd::Create({.matrix_approximation_rank = 0}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(PowerSgd::Create({.start_power_sgd_iter = 1}).status()));
  EXPECT_TRUE(
      PowerSgd::Create({.start_power_sgd_iter = 0, .use_error_feedback = false, .warm_start = false}).status().ok());
}

}  // namespace
}  // namespace ddprun::testing
