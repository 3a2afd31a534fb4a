#include "worker_runtime/process_group/failure_board.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/process.h"
#include "worker_runtime/process_group/meeting.h"

namespace ddprun::testing {
namespace {

using Kind = FailureReport::Kind;
constexpr int kRanks = 64;
constexpr char kPrefix[] = "group";

// A store that counts its requests.
class CountingStore : public c10d::PrefixStore {
 public:
  explicit CountingStore(c10::intrusive_ptr<c10d::Store> store) : c10d::PrefixStore(kPrefix, std::move(store)) {}

  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    ++requests;
    c10d::PrefixStore::set(key, value);
  }
  std::vector<uint8_t> get(const std::string& key) override {
    ++requests;
    return c10d::PrefixStore::get(key);
  }
  bool check(const std::vector<std::string>& keys) override {
    ++requests;
    return c10d::PrefixStore::check(keys);
  }
  void append(const std::string& key, const std::vector<uint8_t>& value) override {
    ++requests;
    c10d::PrefixStore::append(key, value);
  }
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override {
    ++requests;
    return c10d::PrefixStore::multiGet(keys);
  }

  int requests = 0;
};

TEST(FailureBoard, Read_ManyRanks_NumberOfRequestsIsConstant) {
  const auto base = c10::make_intrusive<c10d::HashStore>();
  const auto store = c10::make_intrusive<c10d::PrefixStore>(kPrefix, base);
  for (int rank = 1; rank < kRanks; ++rank) {
    FailureBoard(store, rank, kRanks).Post({.kind = Kind::kLost, .operation = "barrier", .lost = rank - 1});
  }
  const auto counting = c10::make_intrusive<CountingStore>(base);
  FailureBoard board(counting, 0, kRanks);
  board.Post({.kind = Kind::kTimeout, .operation = "barrier"});
  const FailureReports reports = board.Read();
  EXPECT_EQ(reports.size(), static_cast<size_t>(kRanks));
  EXPECT_EQ(reports.at(63).lost, 62);
  EXPECT_LE(counting->requests, 6);
  EXPECT_FALSE(board.store_is_lost());
}

TEST(RankOfPort, RankOfPort_SeveralHosts_AsksOnceForThatHostsRanks) {
  const auto base = c10::make_intrusive<c10d::HashStore>();
  const auto store = c10::make_intrusive<c10d::PrefixStore>(kPrefix, base);
  std::vector<Peer> list;
  for (int rank = 0; rank < kRanks; ++rank) {
    list.push_back({.host = "h", .pid = rank, .address = absl::StrCat("10.0.0.", rank % 2, ":", 2000 + rank)});
  }
  const Peers peers(list);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      // Both hosts use the same ports.
      const std::vector<int> ports = {3000 + rank / 2, 4000 + rank / 2};
      EXPECT_EQ(AwaitConnections(*store, rank, peers, ports, absl::Minutes(1)), absl::OkStatus());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto counting = c10::make_intrusive<CountingStore>(base);
  EXPECT_EQ(RankOfPort(*counting, peers, {"10.0.0.1:1", "10.0.0.1:4005"}), 11);
  EXPECT_EQ(counting->requests, 2);
  EXPECT_EQ(RankOfPort(*counting, peers, {"10.0.0.0:4005"}), 10);
  EXPECT_EQ(RankOfPort(*counting, peers, {"10.0.0.1:5"}), std::nullopt);
  EXPECT_EQ(RankOfPort(*counting, peers, {"10.0.0.9:4005"}), std::nullopt);
}

// While a thread of this rank waits for a report of another rank, a report of this rank is not lost.
TEST(FailureBoard, Post_OtherThreadIsInACall_ThatThreadPosts) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  FailureBoard board(store, 0, 2), other(store, 1, 2);
  std::thread waiting([&] { board.Await(1, absl::Minutes(1)); });
  bool in_call = false;
  ASSERT_TRUE(Eventually([&] {
    // Ask does nothing while another thread is in a call.
    in_call = true;
    board.Ask([&](c10d::Store&) { in_call = false; });
    return in_call;
  }));
  board.Post({.kind = Kind::kAborted, .operation = "Abort", .detail = "the launcher says so"});
  EXPECT_FALSE(store->check({"failed/0"})) << "and Post does not wait";
  other.Post({.kind = Kind::kLeft});
  waiting.join();
  const FailureReports reports = other.Read();
  ASSERT_TRUE(reports.contains(0));
  EXPECT_EQ(reports.at(0).detail, "the launcher says so");
}

}  // namespace
}  // namespace ddprun::testing
