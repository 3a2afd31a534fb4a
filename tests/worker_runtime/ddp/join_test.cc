#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <string>
#include <vector>

#include "tests/worker_runtime/ddp/small_models.h"
#include "tests/worker_runtime/testing/ranks.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"

namespace ddprun::testing {
namespace {

using Ddp = DistributedDataParallel<Scale>;

// Rank r trains 2 + r steps with a local gradient of 6 (r + 1). Appends the averaged gradients.
absl::Status TrainUnevenly(int rank, Ddp& ddp, const JoinOptions& options, std::vector<double>* gradients) {
  return ddp.Join(
      [&]() -> absl::Status {
        for (int step = 0; step < 2 + rank; ++step) {
          ddp.zero_grad();
          ddp.forward(at::full({4}, 6.0 * (rank + 1))).sum().backward();
          gradients->push_back(ddp.module()->weight.grad()[0].item<double>());
          torch::NoGradGuard no_grad;
          ddp.module()->weight.sub_(ddp.module()->weight.grad());
        }
        return absl::OkStatus();
      },
      options);
}

std::shared_ptr<Ddp> Wrap(Group group) { return *MakeDistributedDataParallel(std::make_shared<Scale>(), group); }

TEST(JoinTest, UnevenInputs_OthersGoOn_AllHaveTheLastModel) {
  for (const bool divide_by_all : {true, false}) {
    ExpectRanksSucceed(3, [=](int rank, Group group) -> absl::Status {
      auto ddp = Wrap(group);
      std::vector<double> gradients;
      absl::Status joined = TrainUnevenly(rank, *ddp, {.divide_by_initial_world_size = divide_by_all}, &gradients);
      if (!joined.ok()) return joined;
      // 6 + 12 + 18 with three ranks, 12 + 18 with two, 18 with one.
      const std::vector<double> all =
          divide_by_all ? std::vector<double>{12, 12, 10, 6} : std::vector<double>{12, 12, 15, 18};
      EXPECT_EQ(gradients, std::vector<double>(all.begin(), all.begin() + 2 + rank)) << divide_by_all;
      double weight = 1;
      for (double gradient : all) weight -= gradient;
      EXPECT_TRUE(at::allclose(ddp->module()->weight, at::full({4}, weight))) << "rank " << rank;
      return absl::OkStatus();
    });
  }
}

TEST(JoinTest, EvenInputs_AndARankWithoutAny) {
  ExpectRanksSucceed(2, [](int rank, Group group) -> absl::Status {
    auto ddp = Wrap(group);
    const auto train = [&](int steps) {
      return ddp->Join([&]() -> absl::Status {
        for (int step = 0; step < steps; ++step) ddp->forward(at::full({4}, 1.0)).sum().backward();
        return absl::OkStatus();
      });
    };
    if (absl::Status even = train(2); !even.ok()) return even;
    return train(rank == 0 ? 0 : 3);
  });
}

TEST(JoinTest, ThrowOnEarlyTermination_AllRanksStop_ErrorNamesWhoRanOut) {
  ExpectRanksSucceed(3, [](int rank, Group group) {
    auto ddp = Wrap(group);
    std::vector<double> gradients;
    const absl::Status joined = TrainUnevenly(rank, *ddp, {.throw_on_early_termination = true}, &gradients);
    EXPECT_TRUE(absl::IsOutOfRange(joined)) << joined;
    EXPECT_EQ(joined.message().substr(0, 23), "rank 0 ran out of input") << joined;
    EXPECT_EQ(gradients.size(), 2);
  });
}

TEST(JoinTest, ErrorOfTheLoop_IsReturned_AndNestingRefused) {
  ExpectRanksSucceed(1, [](int, Group group) -> absl::Status {
    auto ddp = Wrap(group);
    const absl::Status failed =
        ddp->Join([&]() -> absl::Status { return ddp->Join([]() -> absl::Status { return absl::OkStatus(); }); });
    EXPECT_TRUE(absl::IsFailedPrecondition(failed)) << failed;
    return ddp->Join([]() -> absl::Status { return absl::OkStatus(); });
  });
}

}  // namespace
}  // namespace ddprun::testing
