// Ranks are threads, which exchange rank 0's text through a future.
#include "worker_runtime/process_group/env_from_ranks.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::string> NotCalled(std::string) { return absl::InternalError("called"); }

TEST(EnvFromRanksTest, EnvFromRanks_TwoRanks_FormAGroup) {
  std::promise<std::string> sent;
  const std::shared_future<std::string> received = sent.get_future().share();
  std::vector<double> sums(2);
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto broadcast = [&](std::string text) -> absl::StatusOr<std::string> {
        if (rank == 0) sent.set_value(text);
        return received.get();
      };
      const absl::StatusOr<WorkerEnv> env = EnvFromRanks({rank, 2, rank, 2}, broadcast);
      ASSERT_TRUE(env.ok()) << env.status();
      EXPECT_EQ(env->master_addr, "127.0.0.1");
      EXPECT_GT(env->master_port, 0);
      // Threads of one process: not counted by process.
      auto group = ProcessGroup::Create(*env, {.timeout = absl::Minutes(1), .attempt = 1});
      ASSERT_TRUE(group.ok()) << group.status();
      const at::Tensor value = at::full({1}, rank + 1, at::kDouble);
      EXPECT_EQ((*group)->AllReduce(value), absl::OkStatus());
      sums[rank] = value.item<double>();
      EXPECT_EQ((*group)->Shutdown(), absl::OkStatus());
    });
  }
  ranks.clear();
  EXPECT_EQ(sums, std::vector<double>(2, 3));
}

TEST(EnvFromRanksTest, EnvFromRanks_InvalidRanks_IsInvalidArgumentWithoutBroadcast) {
  for (const AssignedRanks& ranks : {AssignedRanks{2, 2, 0, 1}, AssignedRanks{-1, 2, 0, 1}, AssignedRanks{0, 2, 1, 1},
                                     AssignedRanks{0, 1, 0, 2}, AssignedRanks{0, 0, 0, 1}}) {
    EXPECT_EQ(EnvFromRanks(ranks, NotCalled).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(EnvFromRanksTest, EnvFromRanks_OneRank_NeedsNoBroadcast) { EXPECT_TRUE(EnvFromRanks({}, NotCalled).ok()); }

TEST(EnvFromRanksTest, EnvFromRanks_RankZeroHasNoStore_AllReturnItsError) {
  const auto failed = [](std::string) -> absl::StatusOr<std::string> { return "error: no free port"; };
  const absl::Status status = EnvFromRanks({1, 2, 0, 1}, failed).status();
  EXPECT_EQ(status, absl::UnavailableError("no free port"));
}

TEST(EnvFromRanksTest, EnvFromRanks_BroadcastReturnsOtherText_ErrorQuotesIt) {
  const auto other = [](std::string) -> absl::StatusOr<std::string> { return "host"; };
  EXPECT_THAT(EnvFromRanks({1, 2, 0, 1}, other).status().message(),
              HasSubstr("rank 1: the broadcast returned \"host\""));
}

}  // namespace
}  // namespace ddprun::testing
