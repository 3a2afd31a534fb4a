#include "worker_runtime/process_group/process_group.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "tests/worker_runtime/testing/ranks.h"

namespace ddprun::testing {
namespace {

TEST(ProcessGroup, Error_OfOneRank_EndsAll) {
  const absl::Status status = RunRanks(3, [](int rank, std::shared_ptr<ProcessGroup> group) {
    if (rank == 1) return absl::InternalError("enough");
    return group->Barrier();
  });
  EXPECT_EQ(status.message(), "[1] enough");
}

TEST(ProcessGroup, Collectives_GiveEveryRankTheSame) {
  EXPECT_EQ(RunRanks(3,
                     [](int rank, std::shared_ptr<ProcessGroup> group) {
                       at::Tensor tensor = at::full({4}, rank + 1.0);
                       if (absl::Status status = group->AllReduce(tensor); !status.ok()) return status;
                       EXPECT_EQ(tensor[3].item<double>(), 6);
                       absl::StatusOr<std::string> text = group->BroadcastText(rank == 1 ? "from one" : "", 1);
                       if (!text.ok()) return text.status();
                       EXPECT_EQ(*text, "from one");
                       return group->Barrier();
                     }),
            absl::OkStatus());
}

}  // namespace
}  // namespace ddprun::testing
