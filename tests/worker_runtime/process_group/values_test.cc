#include "worker_runtime/process_group/values.h"

#include <gtest/gtest.h>

#include "tests/worker_runtime/testing/ranks.h"

namespace ddprun::testing {
namespace {

TEST(Values, OfAllRanks_AreTheSameOnAll) {
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

TEST(Values, OfAGroupThatFailed_AreItsError) {
  absl::StatusOr<std::shared_ptr<ProcessGroup>> group = ProcessGroup::Create(WorkerEnv());
  (*group)->Abort("enough");
  EXPECT_TRUE(absl::IsAborted(AnyRank(**group, true).status()));
}

}  // namespace
}  // namespace ddprun::testing
