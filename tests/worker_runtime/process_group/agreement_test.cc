#include "worker_runtime/process_group/agreement.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tests/worker_runtime/testing/ranks.h"

namespace ddprun::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TEST(OutcomeOfAll, OutcomeOfAll_SeveralErrors_ReturnsTheLowestRanksOnAll) {
  std::vector<absl::Status> outcomes(3);
  ExpectRanksSucceed(3, [&](int rank, Group group) {
    EXPECT_TRUE(OutcomeOfAll(group.get(), absl::OkStatus()).ok());
    const absl::Status mine = rank == 0 ? absl::OkStatus() : absl::DataLossError(absl::StrCat("broken ", rank));
    outcomes[static_cast<size_t>(rank)] = OutcomeOfAll(group.get(), mine);
  });
  EXPECT_THAT(outcomes, Each(absl::DataLossError("broken 1")));
  EXPECT_EQ(OutcomeOfAll(nullptr, absl::DataLossError("alone")), absl::DataLossError("alone"));
}

TEST(RankMeeting, AwaitText_ManyCalls_TextAndErrorReachAll) {
  ExpectRanksSucceed(3, [&](int rank, Group group) {
    for (int call = 0; call < 20; ++call) {
      const int root = call % 3;
      RankMeeting meeting(group.get(), "Tests::Call");
      EXPECT_EQ(meeting.AwaitAll(absl::Minutes(1)), absl::OkStatus());
      const auto text = meeting.AwaitText(root, absl::StrCat("call ", call, " of rank ", rank), absl::Minutes(1));
      EXPECT_EQ(text.value(), absl::StrCat("call ", call, " of rank ", root));
      const absl::Status error =
          meeting.AwaitOutcome(root, absl::DataLossError(absl::StrCat("of ", rank)), absl::Minutes(1));
      EXPECT_EQ(error, absl::DataLossError(absl::StrCat("of ", root)));
      EXPECT_EQ(meeting.AwaitAll(absl::Minutes(1)), absl::OkStatus());
    }
  });
}

// A trainer with `if (rank == 0) Save()`: the other ranks continue with a collective.
TEST(RankMeeting, AwaitAll_OnlyRankZeroCalls_ErrorSaysThatAllMustCall) {
  std::vector<std::string> errors(3);
  const absl::Status status =
      RunRanks(3, ProcessGroupOptions{.timeout = absl::Seconds(5)}, [&](int rank, Group group) -> absl::Status {
        const absl::Status error = rank == 0 ? RankMeeting(group.get(), "Tests::Call").AwaitAll(absl::Seconds(1))
                                             : group->AllReduce(at::ones({8}));
        errors[static_cast<size_t>(rank)] = std::string(error.message());
        return absl::OkStatus();
      });
  EXPECT_FALSE(status.ok()) << "the group is of no more use";
  EXPECT_EQ(errors[0],
            "rank 0: Tests::Call: timed out after 1s waiting for rank 1, rank 2; all ranks must call Tests::Call");
  EXPECT_THAT(errors, Each(HasSubstr("all ranks must call Tests::Call")));
}

TEST(RankMeeting, AwaitAll_AbortWhileWaiting_EndsTheWait) {
  std::vector<absl::Status> errors(2);
  RunRanks(2, [&](int rank, Group group) -> absl::Status {
    RankMeeting meeting(group.get(), "Tests::Call");
    const absl::Status met = meeting.AwaitAll(absl::Minutes(1));
    if (rank == 0) return met.ok() ? absl::UnavailableError("a disk broke") : met;  // RunRanks aborts the other's group
    // Rank 0 may already fail before rank 1 has read that all have arrived.
    errors[1] = met.ok() ? meeting.AwaitOutcome(0, absl::OkStatus(), absl::Hours(1)) : met;
    return absl::OkStatus();
  }).IgnoreError();
  EXPECT_EQ(errors[1].code(), absl::StatusCode::kAborted) << errors[1];
}

// A store whose host dies.
class MortalStore : public c10d::PrefixStore {
 public:
  MortalStore(c10::intrusive_ptr<c10d::Store> store, const std::atomic<bool>* dead)
      : c10d::PrefixStore("mortal", std::move(store)), dead_(dead) {}
  int64_t add(const std::string& key, int64_t value) override {
    TORCH_CHECK_WITH(DistNetworkError, !*dead_, "Failed to recv, got 0 bytes");
    return c10d::PrefixStore::add(key, value);
  }

 private:
  const std::atomic<bool>* const dead_;
};

TEST(RankMeeting, AwaitAll_StoreIsLost_AbortsTheGroup) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::atomic<bool> dead = false;
  std::barrier formed(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      auto group = ProcessGroup::CreateWithStore(c10::make_intrusive<MortalStore>(store, &dead), "group", rank, 2);
      formed.arrive_and_wait();
      ASSERT_TRUE(group.ok()) << group.status();
      dead = true;
      const absl::Status met = RankMeeting(group->get(), "Tests::Call").AwaitAll(absl::Minutes(1));
      EXPECT_TRUE(absl::IsUnavailable(met)) << met;
      EXPECT_FALSE((*group)->Health().ok());
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(RankMeeting, AwaitText_RootTakesTooLong_OthersNameIt) {
  ExpectRanksSucceed(2, [&](int rank, Group group) -> absl::Status {
    RankMeeting meeting(group.get(), "Tests::Call");
    DDPRUN_RETURN_IF_ERROR(meeting.AwaitAll(absl::Minutes(1)));
    if (rank == 0) {
      group->store()->get("rank 1 gave up");
      return meeting.AwaitOutcome(0, absl::OkStatus(), absl::Minutes(1));
    }
    const absl::Status late = meeting.AwaitOutcome(0, absl::OkStatus(), absl::Milliseconds(1));
    EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(late.message()), HasSubstr("rank 0 did not finish within 1ms"));
    group->store()->set("rank 1 gave up", "");
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace ddprun::testing
