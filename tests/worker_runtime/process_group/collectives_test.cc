#include "worker_runtime/process_group/collectives.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "base/status_macros.h"
#include "tests/worker_runtime/testing/ranks.h"

namespace ddprun::testing {
namespace {

// [2, 5], different on each rank.
at::Tensor Of(int rank) { return at::arange(10).view({2, 5}).to(at::kFloat) + 100 * rank; }

TEST(TensorCollectives, AllOperations_ThreeRanks_MovePartsLikeTorchDistributed) {
  ExpectRanksSucceed(3, [](int rank, Group group) -> absl::Status {
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

TEST(TensorCollectives, AnyOperation_ShapesDoNotMatch_NamesThemAndKeepsTheGroup) {
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

TEST(AsyncCollectives, Wait_SeveralInFlight_WorksInAnyOrder) {
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
TEST(AsyncCollectives, AsyncRecv_PeerSendsLater_DoesNotBlock) {
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

TEST(AsyncCollectives, AsyncAllReduce_HandleIsDropped_OperationContinues) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    const at::Tensor dropped = Of(rank), next = Of(rank);
    { EXPECT_EQ(AsyncAllReduce(*group, dropped).status(), absl::OkStatus()); }
    EXPECT_EQ(group->AllReduce(next), absl::OkStatus());
    EXPECT_TRUE(at::equal(next, Of(0) + Of(1)));
  });
}

// Rank 1 never sends; the group is aborted while the operation is in flight.
TEST(AsyncCollectives, Wait_GroupIsAborted_ReturnsTheReason) {
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

TEST(AsyncCollectives, AnyOperation_TensorDoesNotMatch_IsInvalidArgument) {
  ExpectRanksSucceed(2, [](int rank, Group group) -> absl::Status {
    EXPECT_TRUE(absl::IsInvalidArgument(AsyncAllReduce(*group, Of(0).t()).status()));
    EXPECT_TRUE(
        absl::IsInvalidArgument(AsyncAllReduce(*group, at::zeros({1}, at::kLong), ReduceOp::kAverage).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(AsyncBroadcast(*group, Of(0), 2).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(AsyncSend(*group, Of(0), rank).status()));
    return group->Barrier();
  });
}

TEST(ValueCollectives, AllOperations_ThreeRanks_AreEqualOnAll) {
  ExpectRanksSucceed(3, [](int rank, Group group) -> absl::Status {
    EXPECT_EQ(AllReduceValue(*group, rank + 0.5).value(), 4.5);
    EXPECT_EQ(AllReduceValue(*group, rank + 0.5, ReduceOp::kAverage).value(), 1.5);
    EXPECT_EQ(AllReduceValue(*group, rank, ReduceOp::kMax).value(), 2);
    // A number of samples that a double would round.
    EXPECT_EQ(AllReduceValue(*group, (int64_t{1} << 53) + rank, ReduceOp::kMax).value(), (int64_t{1} << 53) + 2);
    EXPECT_TRUE(AnyRank(*group, rank == 1).value());
    EXPECT_FALSE(AnyRank(*group, false).value());
    EXPECT_FALSE(AllRanks(*group, rank != 1).value());
    EXPECT_TRUE(AllRanks(*group, true).value());
    EXPECT_EQ(BroadcastValue(*group, rank * 1.25, 2).value(), 2.5);
    EXPECT_EQ(BroadcastValue(*group, rank * 10, 1).value(), 10);
    EXPECT_TRUE(absl::IsInvalidArgument(BroadcastValue(*group, 1, 3).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(AllReduceValue(*group, 1, ReduceOp::kAverage).status()));
    return group->Barrier();
  });
}

TEST(ValueCollectives, AnyRank_GroupWasAborted_IsAborted) {
  absl::StatusOr<std::shared_ptr<ProcessGroup>> group = ProcessGroup::Create(WorkerEnv());
  (*group)->Abort("enough");
  EXPECT_TRUE(absl::IsAborted(AnyRank(**group, true).status()));
}

}  // namespace
}  // namespace ddprun::testing
