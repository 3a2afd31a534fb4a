#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "tests/testing/process.h"
#include "tests/worker_runtime/testing/process_entries.h"
#include "tests/worker_runtime/testing/rank_processes.h"
#include "worker_runtime/process_group/collectives.h"
#include "worker_runtime/process_group/interruptible_backend.h"

// Connections break in the middle of a message: rank 0 sends more than the socket buffers hold to rank 1, which stops
// when the first bytes have arrived.
namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;
constexpr int kHour = 3600;  // timeout of the groups; a test that waits for it fails

class MidMessage : public ::testing::TestWithParam<const char*> {};

TEST_P(MidMessage, AllReduce_PeerKilledMidMessage_ErrorNamesIt) {
  RankProcesses ranks(2, GetParam(), kHour);
  ASSERT_TRUE(ranks[1].WaitForOut("half a message has come"));
  ranks[1].Signal(SIGKILL);
  EXPECT_EQ(ranks[0].Wait(), 1);
  EXPECT_THAT(ranks[0].Err(), HasSubstr(ranks.NameOf(1) + " exited or was killed"));
}

TEST_P(MidMessage, Abort_HalfAMessageSent_EndsTheOperation) {
  RankProcesses ranks(2, GetParam(), kHour);
  ASSERT_TRUE(ranks[1].WaitForOut("half a message has come"));
  ranks[0].Signal(SIGUSR1);
  EXPECT_EQ(ranks[0].Wait(), 1);
  EXPECT_THAT(ranks[0].Err(), HasSubstr("aborted: told so by a signal"));
}

INSTANTIATE_TEST_SUITE_P(Operations, MidMessage, ::testing::Values("half_send", "half_broadcast", "half_scatter"),
                         [](const auto& test) { return std::string(test.param); });

// The ranks are threads; both abort their groups in the middle of a broadcast and form the next groups at once.
TEST(Interruption, Abort_HundredTimes_LeavesNothingBehind) {
  constexpr int kGroups = 100, kElements = 4 << 20;
  const at::Tensor sent = at::full({kElements}, 1.0f), received = at::zeros({kElements});
  std::atomic<int> failed = 0;
  const auto live = [&](const c10::intrusive_ptr<c10d::Store>& store, int rank) {
    ProcessGroupOptions options{.timeout = absl::Seconds(15)};
    absl::StatusOr<std::shared_ptr<ProcessGroup>> group =
        ProcessGroup::CreateWithStore(store, "group", rank, 2, options);
    ASSERT_TRUE(group.ok()) << group.status();
    EXPECT_EQ((*group)->AllReduce(at::full({100}, 1.0f)), absl::OkStatus());
    absl::StatusOr<Work> work = AsyncBroadcast(**group, rank == 0 ? sent : received);
    ASSERT_TRUE(work.ok()) << work.status();
    const std::atomic_ref<float> first(*received.data_ptr<float>());
    EXPECT_TRUE(Eventually([&] { return first.load() == 1.0f; }));
    (*group)->Abort("the other one died");
    failed += absl::IsAborted(work->Wait());
  };
  const ProcessEntries before;
  for (int number = 0; number < kGroups; ++number) {
    received.zero_();
    const auto store = c10::make_intrusive<c10d::HashStore>();
    std::thread other([&] { live(store, 1); });
    live(store, 0);
    other.join();
  }
  EXPECT_EQ(failed, 2 * kGroups);
  before.ExpectNoMore();
}

// Calls `published` when Gloo has published its address.
class HookedStore : public c10d::PrefixStore {
 public:
  HookedStore(c10::intrusive_ptr<c10d::Store> store, std::function<void()> published)
      : c10d::PrefixStore("hooked", std::move(store)), published_(std::move(published)) {}

  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    c10d::PrefixStore::set(key, value);
    if (absl::StrContains(key, "/gloo/")) published_();
  }

 private:
  const std::function<void()> published_;
};

// Rank 1 exits before it has connected to rank 0; Gloo waits for the connection and can't be interrupted.
TEST(Interruption, Create_Cancelled_EndsAtOnceAndLeavesNothingBehind) {
  constexpr int kGroups = 20;
  const ProcessEntries before;
  for (int number = 0; number < kGroups; ++number) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    std::stop_source stop;
    ProcessGroupOptions options{.timeout = absl::Seconds(20), .cancel = stop.get_token()};
    const auto create = [&](int rank, std::function<void()> published) {
      return ProcessGroup::CreateWithStore(c10::make_intrusive<HookedStore>(store, std::move(published)), "group", rank,
                                           2, options)
          .status();
    };
    std::atomic<bool> connects = false, ended = false;
    std::thread creating([&] {
      EXPECT_TRUE(absl::IsCancelled(create(0, [&] { connects = true; })));
      ended = true;
    });
    EXPECT_FALSE(create(1, [] { throw std::runtime_error("the end of this rank"); }).ok());
    EXPECT_TRUE(Eventually([&] { return connects.load(); }));
    EXPECT_FALSE(ended);
    stop.request_stop();
    creating.join();
  }
  EXPECT_TRUE(before.HasMoreThreads()) << "Gloo does not wait, so this test shows nothing";
  before.ExpectNoMore();
}

using Sight = OperationWatch::Sight;
SteadyTime At(absl::Duration since_start) { return SteadyTime::FromStart(absl::Hours(1) + since_start); }

TEST(OperationWatch, Step_Interrupted_EndsAfterTheGraceUnlessAConnectionIsOpen) {
  OperationWatch watch;
  watch.Interrupt(At(absl::ZeroDuration()));
  watch.Interrupt(At(absl::Seconds(60)));
  EXPECT_FALSE(watch.Step({.lost = 2}, At(absl::Milliseconds(49))));
  EXPECT_FALSE(watch.Step({.lost = 1, .open = 1}, At(absl::Milliseconds(51))));
  EXPECT_TRUE(watch.Step({.lost = 2}, At(absl::Milliseconds(52))));
  EXPECT_TRUE(watch.Step({.lost = 1, .open = 1}, At(absl::Seconds(1))));
  EXPECT_EQ(watch.NextLook(At(absl::ZeroDuration())), At(OperationWatch::kGrace));
}

TEST(OperationWatch, Step_LostConnection_EndsAfterSilence) {
  OperationWatch watch;
  EXPECT_FALSE(watch.Step({.open = 2, .bytes = 5}, At(absl::ZeroDuration())));
  EXPECT_FALSE(watch.Step({.open = 2, .bytes = 5}, At(absl::Hours(5)))) << "a peer may be late";
  EXPECT_FALSE(watch.Step({.lost = 1, .open = 1, .bytes = 5}, At(absl::Hours(6))));
  EXPECT_FALSE(watch.Step({.lost = 1, .open = 1, .bytes = 6}, At(absl::Hours(6) + absl::Seconds(1))));
  EXPECT_FALSE(watch.Step({.lost = 1, .open = 1, .bytes = 6}, At(absl::Hours(6) + absl::Milliseconds(1999))));
  EXPECT_TRUE(watch.Step({.lost = 1, .open = 1, .bytes = 6}, At(absl::Hours(6) + absl::Seconds(2))));
}

TEST(OperationWatch, Step_LostConnectionAndAnotherFailed_EndsAtOnce) {
  OperationWatch watch;
  EXPECT_FALSE(watch.Step({.open = 2, .one_failed = true}, At(absl::ZeroDuration()))) << "such as a wrong dtype";
  EXPECT_TRUE(watch.Step({.lost = 1, .open = 1, .one_failed = true}, At(absl::Milliseconds(100))));
}

TEST(OperationWatch, Rest_AfterSilence_ForgetsIt) {
  OperationWatch watch;
  EXPECT_FALSE(watch.Step({.lost = 1}, At(absl::ZeroDuration())));
  watch.Rest();
  EXPECT_FALSE(watch.Step({.lost = 1}, At(absl::Seconds(5))));
}

}  // namespace
}  // namespace ddprun::testing
