#include "worker_runtime/ddp/shared_segment.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

namespace ddprun {
namespace {

constexpr absl::Duration kLong = absl::Minutes(1);

std::unique_ptr<SharedSegment> Make(int size) {
  absl::StatusOr<std::unique_ptr<SharedSegment>> made = SharedSegment::Make(size, 4096);
  return made.ok() ? *std::move(made) : nullptr;
}

std::unique_ptr<SharedSegment> Open(const SharedSegment& of, int rank) {
  absl::StatusOr<std::unique_ptr<SharedSegment>> opened = SharedSegment::Open(of.address(), rank);
  return opened.ok() ? *std::move(opened) : nullptr;
}

TEST(SharedSegmentTest, EnterBarrier_AllRanks_SeeTheOthersWrites) {
  constexpr int kRanks = 4, kRounds = 200;
  std::unique_ptr<SharedSegment> first = Make(kRanks);
  ASSERT_NE(first, nullptr);
  std::atomic<int> wrong = 0;
  const auto run = [&wrong](SharedSegment* segment) {
    for (int round = 0; round < kRounds; ++round) {
      std::memcpy(segment->slot(segment->rank()), &round, sizeof(round));
      if (!segment->EnterBarrier(kLong, nullptr).ok()) ++wrong;
      for (int rank = 0; rank < kRanks; ++rank) {
        int seen = -1;
        std::memcpy(&seen, segment->slot(rank), sizeof(seen));
        if (seen != round) ++wrong;
      }
      if (!segment->EnterBarrier(kLong, nullptr).ok()) ++wrong;
    }
  };
  std::vector<std::unique_ptr<SharedSegment>> segments;
  std::vector<std::thread> threads;
  for (int rank = 1; rank < kRanks; ++rank) {
    segments.push_back(Open(*first, rank));
    ASSERT_NE(segments.back(), nullptr);
  }
  for (const auto& segment : segments) threads.emplace_back(run, segment.get());
  run(first.get());
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(SharedSegmentTest, Slot_AllRanks_AreDisjointAndAligned) {
  std::unique_ptr<SharedSegment> segment = Make(3);
  ASSERT_NE(segment, nullptr);
  EXPECT_EQ(segment->slot_bytes(), 4096);
  EXPECT_EQ(segment->slot(1) - segment->slot(0), 4096);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(segment->slot(2)) % 64, 0);
}

TEST(SharedSegmentTest, EnterBarrier_RankMissing_DeadlineExceededNamesIt) {
  std::unique_ptr<SharedSegment> first = Make(3);
  ASSERT_NE(first, nullptr);
  std::unique_ptr<SharedSegment> second = Open(*first, 1), third = Open(*first, 2);
  const absl::Status status = first->EnterBarrier(absl::Milliseconds(50), nullptr);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_EQ(status.message(), "timed out after 50ms waiting for rank 1, 2");
  // It gave up, so the other ranks do not wait for it.
  EXPECT_TRUE(absl::IsUnavailable(second->EnterBarrier(kLong, nullptr)));
}

TEST(SharedSegmentTest, EnterBarrier_PeerLeaves_IsUnavailable) {
  std::unique_ptr<SharedSegment> first = Make(2);
  std::unique_ptr<SharedSegment> second = Open(*first, 1);
  second.reset();
  const absl::Status status = first->EnterBarrier(kLong, nullptr);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("rank 1 (process "), std::string::npos) << status;
}

TEST(SharedSegmentTest, EnterBarrier_CheckFails_ReturnsItsError) {
  std::unique_ptr<SharedSegment> first = Make(2);
  std::unique_ptr<SharedSegment> second = Open(*first, 1);
  const absl::Status status = first->EnterBarrier(kLong, [] { return absl::AbortedError("enough"); });
  EXPECT_EQ(status, absl::AbortedError("enough"));
}

TEST(SharedSegmentTest, EnterBarrier_PeerIsKilled_IsUnavailable) {
  std::unique_ptr<SharedSegment> first = Make(2);
  ASSERT_NE(first, nullptr);
  const std::string address = first->address();
  const pid_t child = fork();
  if (child == 0) {
    absl::StatusOr<std::unique_ptr<SharedSegment>> second = SharedSegment::Open(address, 1);
    if (second.ok()) second->get()->EnterBarrier(kLong, nullptr).IgnoreError();
    while (true) pause();
  }
  EXPECT_TRUE(first->EnterBarrier(kLong, nullptr).ok());
  std::thread killer([child] { kill(child, SIGKILL); });
  const absl::Status status = first->EnterBarrier(kLong, nullptr);
  killer.join();
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("is dead"), std::string::npos) << status;
}

TEST(SharedSegmentTest, Open_NoSuchAddress_FailedPreconditionNamesHosts) {
  std::unique_ptr<SharedSegment> first = Make(2);
  std::string address = first->address();
  address.back() = address.back() == '1' ? '2' : '1';  // last digit of the random number
  EXPECT_TRUE(absl::IsFailedPrecondition(SharedSegment::Open(address, 1).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(SharedSegment::Open("node7\t1\t999\t5", 1).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(SharedSegment::Open("", 1).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(SharedSegment::Open(first->address(), 2).status()));
  const absl::Status status = SharedSegment::Open("node7\t1\t999\t5", 1).status();
  EXPECT_NE(status.message().find("rank 0 on host node7; shared memory requires"), std::string::npos) << status;
  first->CloseAddress();
  EXPECT_TRUE(absl::IsFailedPrecondition(SharedSegment::Open(address, 1).status()));
}

}  // namespace
}  // namespace ddprun
