#include <ATen/ops/equal.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <vector>

#include "tests/worker_runtime/ddp/small_models.h"
#include "tests/worker_runtime/testing/ranks.h"
#include "worker_runtime/ddp/all_reduce_speed.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/process_group/collectives.h"

namespace ddprun::testing {
namespace {

// Expects the same value on all ranks.
void ExpectSame(ProcessGroup& group, double value) {
  const absl::StatusOr<double> least = AllReduceValue(group, value, ReduceOp::kMin);
  const absl::StatusOr<double> most = AllReduceValue(group, value, ReduceOp::kMax);
  EXPECT_EQ(least, most);
}

TEST(MeasureAllReduce, SameOnAllRanks_AndPlausible) {
  ExpectRanksSucceed(3, [](int, Group group) {
    const absl::StatusOr<AllReduceSpeed> speed = MeasureAllReduce(*group, at::kCPU, 1 << 20);
    EXPECT_GT(speed->latency, absl::Microseconds(1));
    EXPECT_LT(speed->latency, absl::Seconds(10));
    EXPECT_GT(speed->bytes_per_second, 1e4);
    EXPECT_LE(speed->bytes_per_second, (1 << 20) / 1e-6);
    ExpectSame(*group, absl::ToDoubleSeconds(speed->latency));
    ExpectSame(*group, speed->bytes_per_second);
  });
}

TEST(MeasuredBucketCap, IsTheSameOnAllRanks_AndTrainsWithTheSameBits) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    std::vector<at::Tensor> gradients;  // without, then with it
    for (const bool measure : {false, true}) {
      auto net = std::make_shared<torch::nn::SequentialImpl>(torch::nn::Linear(7, 300), torch::nn::Linear(300, 300),
                                                             torch::nn::Linear(300, 300), torch::nn::Linear(300, 300));
      Fill(*net);
      auto ddp = MakeDistributedDataParallel(net, group, {.measure_bucket_cap = measure});
      EXPECT_EQ((*ddp)->bucket_cap_mb().has_value(), measure);
      if (measure) {
        EXPECT_GE(*(*ddp)->bucket_cap_mb(), 0.25);
        EXPECT_LE(*(*ddp)->bucket_cap_mb(), 25);
        ExpectSame(*group, *(*ddp)->bucket_cap_mb());
      }
      for (int step = 0; step < 3; ++step) {
        (*ddp)->zero_grad();
        (*ddp)->forward(Inputs(step, rank)).square().mean().backward();
      }
      for (const at::Tensor& parameter : net->parameters()) gradients.push_back(parameter.grad());
    }
    const size_t half = gradients.size() / 2;
    for (size_t i = 0; i < half; ++i) EXPECT_TRUE(at::equal(gradients[i], gradients[half + i])) << i;
  });
}

}  // namespace
}  // namespace ddprun::testing
