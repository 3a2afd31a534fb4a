#include "worker_runtime/process_group/async_collectives.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "tests/worker_runtime/testing/ranks.h"
#include "worker_runtime/base/status_macros.h"

namespace ddprun::testing {
namespace {

// [2, 5], different on each rank.
at::Tensor Of(int rank) { return at::arange(10).view({2, 5}).to(at::kFloat) + 100 * rank; }

TEST(AsyncCollectives, SeveralInFlight_WaitedForInAnyOrder) {
  ExpectRanksSucceed(3, [](int rank, Group group) -> absl::Status {
    const at::Tensor sum = Of(rank), average = Of(rank), sent = rank == 1 ? Of(7) : at::zeros({2, 5});
    const at::Tensor all = at::zeros({6, 5}), part = at::zeros({2, 5});
    DDPRUN_ASSIGN_OR_RETURN(Work a, AsyncAllReduce(*group, sum));
    DDPRUN_ASSIGN_OR_RETURN(Work b, AsyncAllReduce(*group, average, ReduceOp::kAverage));
    DDPRUN_ASSIGN_OR_RETURN(Work c, AsyncBroadcast(*group, sent, 1));
    DDPRUN_ASSIGN_OR_RETURN(Work d, AsyncAllGatherIntoTensor(*group, all, Of(rank)));
    DDPRUN_ASSIGN_OR_RETURN(Work e, AsyncReduceScatterTensor(*group, part, at::cat({Of(0), Of(1), Of(2)}) * (rank + 1),
                                                             ReduceOp::kAverage));
    for (Work* const work : {&e, &b, &d, &c, &a}) DDPRUN_RETURN_IF_ERROR(work->Wait());
    EXPECT_TRUE(a.IsCompleted());
    EXPECT_TRUE(at::equal(sum, Of(1) * 3));
    EXPECT_TRUE(at::equal(average, Of(1)));
    EXPECT_TRUE(at::equal(sent, Of(7)));
    EXPECT_TRUE(at::equal(all, at::cat({Of(0), Of(1), Of(2)})));
    EXPECT_TRUE(at::equal(part, Of(rank) * 2));
    EXPECT_EQ(b.Wait(), absl::OkStatus());
    EXPECT_TRUE(at::equal(average, Of(1))) << "it was not divided again";
    return group->Barrier();
  });
}

// Rank 1 sends only after rank 0 has started to receive and reached the barrier.
TEST(AsyncCollectives, StartingDoesNotBlock) {
  ExpectRanksSucceed(2, [](int rank, Group group) -> absl::Status {
    const at::Tensor received = at::zeros({2, 5});
    if (rank == 0) {
      DDPRUN_ASSIGN_OR_RETURN(Work receives, AsyncRecv(*group, received, 1, /*tag=*/3));
      EXPECT_FALSE(receives.IsCompleted());
      DDPRUN_RETURN_IF_ERROR(group->Barrier());
      DDPRUN_RETURN_IF_ERROR(receives.Wait());
      EXPECT_TRUE(at::equal(received, Of(4)));
      EXPECT_TRUE(receives.IsCompleted());
      return absl::OkStatus();
    }
    DDPRUN_RETURN_IF_ERROR(group->Barrier());
    DDPRUN_ASSIGN_OR_RETURN(Work sends, AsyncSend(*group, Of(4), 0, /*tag=*/3));
    return sends.Wait();
  });
}

TEST(AsyncCollectives, DroppedHandle_LetsTheOperationGoOn) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    const at::Tensor dropped = Of(rank), next = Of(rank);
    { EXPECT_EQ(AsyncAllReduce(*group, dropped).status(), absl::OkStatus()); }
    EXPECT_EQ(group->AllReduce(next), absl::OkStatus());
    EXPECT_TRUE(at::equal(next, Of(0) + Of(1)));
  });
}

// Rank 1 never sends; the group is aborted while the operation is in flight.
TEST(AsyncCollectives, Abort_EndsWait_WithItsReason) {
  absl::Status waited, next;
  const absl::Status first = RunRanks(2, [&](int rank, Group group) -> absl::Status {
    if (rank == 1) return group->Barrier();  // ends with the abort
    DDPRUN_ASSIGN_OR_RETURN(Work work, AsyncRecv(*group, at::zeros({2, 5}), 1));
    group->Abort("no time left");
    waited = work.Wait();
    next = AsyncAllReduce(*group, at::zeros({1})).status();
    EXPECT_EQ(work.Wait(), waited);
    return absl::OkStatus();
  });
  EXPECT_FALSE(first.ok());
  EXPECT_TRUE(absl::IsAborted(waited)) << waited;
  EXPECT_NE(waited.message().find("recv: aborted: no time left"), std::string::npos) << waited;
  EXPECT_TRUE(absl::IsAborted(next)) << next;
}

TEST(AsyncCollectives, TensorsThatDoNotFit_AreRefusedAtOnce) {
  ExpectRanksSucceed(2, [](int rank, Group group) -> absl::Status {
    EXPECT_TRUE(absl::IsInvalidArgument(AsyncAllReduce(*group, Of(0).t()).status()));
    EXPECT_TRUE(
        absl::IsInvalidArgument(AsyncAllReduce(*group, at::zeros({1}, at::kLong), ReduceOp::kAverage).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(AsyncBroadcast(*group, Of(0), 2).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(AsyncSend(*group, Of(0), rank).status()));
    return group->Barrier();
  });
}

}  // namespace
}  // namespace ddprun::testing
