#include "worker_runtime/process_group/tensor_collectives.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "tests/worker_runtime/testing/ranks.h"

namespace ddprun::testing {
namespace {

constexpr int kRanks = 3;

// [2, 5], different on each rank.
at::Tensor Of(int rank) { return at::arange(10).view({2, 5}).to(at::kFloat) + 100 * rank; }

TEST(TensorCollectives, MoveWhatTorchDistributedMoves) {
  ExpectRanksSucceed(kRanks, [](int rank, Group group) -> absl::Status {
    at::Tensor all = at::zeros({6, 5});
    EXPECT_EQ(AllGatherIntoTensor(*group, all, Of(rank)), absl::OkStatus());
    EXPECT_TRUE(at::equal(all, at::cat({Of(0), Of(1), Of(2)})));

    at::Tensor part = at::zeros({2, 5});
    EXPECT_EQ(ReduceScatterTensor(*group, part, all * (rank + 1)), absl::OkStatus());
    EXPECT_TRUE(at::equal(part, Of(rank) * 6));
    EXPECT_EQ(ReduceScatterTensor(*group, part, all * (rank + 1), ReduceOp::kAverage), absl::OkStatus());
    EXPECT_TRUE(at::equal(part, Of(rank) * 2));

    at::Tensor exchanged = at::zeros({6, 5});
    const at::Tensor own = at::cat({Of(0), Of(1), Of(2)}) + 1000 * rank;
    EXPECT_EQ(AllToAllSingle(*group, exchanged, own), absl::OkStatus());
    EXPECT_TRUE(at::equal(exchanged, at::cat({Of(rank), Of(rank) + 1000, Of(rank) + 2000})));

    if (rank == 0) {
      EXPECT_EQ(Send(*group, Of(7), 2, /*tag=*/5), absl::OkStatus());
    }
    if (rank == 2) {
      at::Tensor received = at::zeros({2, 5});
      EXPECT_EQ(Recv(*group, received, 0, /*tag=*/5), absl::OkStatus());
      EXPECT_TRUE(at::equal(received, Of(7)));
    }
    return group->Barrier();
  });
}

TEST(TensorCollectives, ShapesThatDoNotFit_AreNamed_AndTheGroupGoesOn) {
  ExpectRanksSucceed(2, [](int rank, Group group) -> absl::Status {
    const absl::Status gathered = AllGatherIntoTensor(*group, at::zeros({3, 5}), Of(rank));
    EXPECT_TRUE(absl::IsInvalidArgument(gathered));
    EXPECT_NE(gathered.message().find("shapes [3, 5] and [2, 5] do not match for 2 ranks"), std::string::npos)
        << gathered;
    EXPECT_TRUE(absl::IsInvalidArgument(ReduceScatterTensor(*group, at::zeros({2, 5}), at::zeros({4, 4}))));
    EXPECT_TRUE(absl::IsInvalidArgument(AllToAllSingle(*group, at::zeros({3}), at::zeros({3}))));
    EXPECT_TRUE(absl::IsInvalidArgument(AllGatherIntoTensor(*group, at::zeros({4, 5}), at::zeros({5, 2}).t())));
    for (const int peer : {-1, rank, 2}) EXPECT_TRUE(absl::IsInvalidArgument(Send(*group, Of(0), peer)));
    return group->Barrier();
  });
}

}  // namespace
}  // namespace ddprun::testing
