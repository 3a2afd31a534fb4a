#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "worker_runtime/process_group/interruptible_store.h"

namespace ddprun {
namespace {

// LibTorch creates a communicator like this: the first rank publishes an id of 128 bytes, the others read it.
class NcclStoreTest : public ::testing::Test {
 protected:
  static constexpr int kSize = 3;

  c10::intrusive_ptr<NcclStore> Rank() {
    return c10::make_intrusive<NcclStore>("cuda", shared_, stop_.get_token(), kSize);
  }
  std::future<void> Publish(const std::string& key) {
    return std::async(std::launch::async, [this, key] { Rank()->set(key, std::vector<uint8_t>(128, 7)); });
  }
  std::future<std::vector<uint8_t>> Read(const std::string& key) {
    return std::async(std::launch::async, [this, key] { return Rank()->get(key); });
  }
  // Returns when `ranks` ranks wait for the others.
  void AwaitRanks(const std::string& key, int64_t ranks) {
    while (shared_->add("cuda/" + key + "/ranks", 0) < ranks) std::this_thread::yield();
  }

  const c10::intrusive_ptr<c10d::HashStore> shared_ = c10::make_intrusive<c10d::HashStore>();
  std::stop_source stop_;
};

TEST_F(NcclStoreTest, Get_IdOfAllRanks_ReturnsOnAllTogether) {
  std::future<void> first = Publish("0");
  std::future<std::vector<uint8_t>> second = Read("0");
  AwaitRanks("0", 2);
  EXPECT_FALSE(shared_->check({"cuda/0/all"}));
  std::future<std::vector<uint8_t>> third = Read("0");
  first.get();
  EXPECT_EQ(second.get(), std::vector<uint8_t>(128, 7));
  EXPECT_EQ(third.get().size(), 128u);
}

TEST_F(NcclStoreTest, Get_IdOfSendAndRecv_WaitsForTwoRanks) {
  std::future<void> first = Publish("0:2");
  EXPECT_EQ(Read("0:2").get().size(), 128u);
  first.get();
}

TEST_F(NcclStoreTest, MultiGet_SeveralIds_ReturnsOnAllTogether) {
  const std::vector<std::string> keys = {"UniqueNCCLID:0", "UniqueNCCLID:1"};
  Publish(keys[0]).get();
  Publish(keys[1]).get();
  std::vector<std::future<size_t>> ranks;
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == kSize - 1) {
      AwaitRanks(keys[0], rank);
      EXPECT_FALSE(shared_->check({"cuda/UniqueNCCLID:0/all"}));
    }
    ranks.push_back(std::async(std::launch::async, [&] { return Rank()->multiGet(keys).size(); }));
  }
  for (std::future<size_t>& rank : ranks) EXPECT_EQ(rank.get(), 2u);
}

TEST_F(NcclStoreTest, Get_StopRequested_EndsTheWait) {
  std::future<void> first = Publish("0");
  AwaitRanks("0", 1);
  stop_.request_stop();
  EXPECT_THROW(first.get(), c10::DistStoreError);
}

TEST_F(NcclStoreTest, Get_OtherValue_DoesNotWait) {
  Rank()->set("dump", std::vector<uint8_t>{1});
  EXPECT_EQ(Rank()->get("dump"), std::vector<uint8_t>{1});
}

}  // namespace
}  // namespace ddprun
