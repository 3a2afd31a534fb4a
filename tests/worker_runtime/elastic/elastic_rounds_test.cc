// A worker's rounds, with a fake launcher at the other end of the worker link. Section numbers refer to
// docs/worker_protocol.md.
#include "worker_runtime/elastic/elastic_rounds.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>

#include "tests/worker_runtime/elastic/fake_launcher.h"

namespace ddprun::testing {
namespace {

using namespace worker_contract;

constexpr uint64_t kRound = 5;

LinkReForm NextRound() {
  return {{.round = 6,
           .rank = 1,
           .world_size = 4,
           .local_world_size = 2,
           .group_world_size = 2,
           .master_addr = "10.0.0.5",
           .master_port = 40123},
          1,
          4};
}

class ElasticRoundsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    rounds_ = std::make_unique<ElasticRounds>(kRound, /*patience=*/absl::ZeroDuration());
    link_ = std::make_unique<LauncherLink>(launcher_.address(), /*rank=*/3, /*local_rank=*/1, rounds_->listener());
    rounds_->set_link(link_.get());
    hello_ = launcher_.Hear<LinkHello>();
  }
  void TearDown() override { link_ = nullptr; }

  // Puts a group in use; the future gets the reason of its abort.
  std::future<std::string> Use() {
    auto aborted = std::make_shared<std::promise<std::string>>();
    EXPECT_TRUE(rounds_->BeginGroup(creation_));
    EXPECT_TRUE(rounds_->UseGroup([aborted](const std::string& reason) { aborted->set_value(reason); }));
    return aborted->get_future();
  }
  // Returns when the link's thread has handled all earlier messages.
  void Settle() {
    launcher_.SendToLauncher(LinkCheckpointNow{absl::Seconds(10)});
    while (!rounds_->TakeCheckpointRequest()) std::this_thread::yield();
  }

  FakeLauncher launcher_;
  std::unique_ptr<ElasticRounds> rounds_;
  std::unique_ptr<LauncherLink> link_;
  LinkHello hello_;
  std::stop_source creation_;
};

TEST_F(ElasticRoundsTest, Section3_1_HelloSaysThatItCanReForm) {
  EXPECT_EQ(hello_.rank, 3);
  EXPECT_EQ(hello_.local_rank, 1);
  EXPECT_EQ(hello_.capabilities, (std::vector<std::string>{"progress", "stop", kCanReform, kCanCheckpoint}));
  EXPECT_TRUE(rounds_->linked());
}

TEST_F(ElasticRoundsTest, Section5_1_Suspend_AbortsTheGroupInUse) {
  std::future<std::string> aborted = Use();
  launcher_.SendToLauncher(LinkSuspend{.round = kRound, .reason = "rank 0 was killed"});
  EXPECT_EQ(aborted.get(), "rank 0 was killed");
  EXPECT_TRUE(creation_.stop_requested()) << "ends waits for the store";
  EXPECT_TRUE(rounds_->suspended());
  EXPECT_EQ(rounds_->suspend_reason(), "rank 0 was killed");
}

TEST_F(ElasticRoundsTest, Section5_1_SuspendOfAnOlderRound_DoesNothing) {
  const std::future<std::string> aborted = Use();
  launcher_.SendToLauncher(LinkSuspend{.round = kRound - 1});
  Settle();
  EXPECT_FALSE(rounds_->suspended());
  EXPECT_FALSE(creation_.stop_requested());
}

TEST_F(ElasticRoundsTest, Section5_1_SuspendEndsACreation) {
  EXPECT_TRUE(rounds_->BeginGroup(creation_));
  launcher_.SendToLauncher(LinkSuspend{.round = kRound, .at_step_end = true});
  Settle();
  EXPECT_TRUE(creation_.stop_requested()) << "there is no step to be ended";
  EXPECT_FALSE(rounds_->UseGroup([](const std::string&) { ADD_FAILURE() << "the creator aborts it"; }));
}

TEST_F(ElasticRoundsTest, Section5_1_AtStepEnd_IsOnlyNoted_UntilItBecomesUrgent) {
  std::future<std::string> aborted = Use();
  launcher_.SendToLauncher(LinkSuspend{.round = kRound, .at_step_end = true, .reason = "a node joins"});
  Settle();
  EXPECT_TRUE(rounds_->suspended());
  EXPECT_FALSE(creation_.stop_requested());
  launcher_.SendToLauncher(LinkSuspend{.round = kRound, .reason = "rank 1 was killed"});
  EXPECT_EQ(aborted.get(), "rank 1 was killed");
}

TEST_F(ElasticRoundsTest, SuspendedBeforeTheGroupIsCreated_NothingBegins) {
  launcher_.SendToLauncher(LinkSuspend{.round = kRound});
  Settle();
  EXPECT_FALSE(rounds_->BeginGroup(creation_));
}

TEST_F(ElasticRoundsTest, Section5_2_SaysSuspendedWithItsStep_AndGetsTheNextRound) {
  const std::future<std::string> aborted = Use();
  launcher_.SendToLauncher(LinkSuspend{.round = kRound});
  Settle();
  rounds_->EndGroup();
  std::thread launcher([this] {
    EXPECT_EQ(launcher_.Hear<LinkSuspended>(), (LinkSuspended{kRound, 120}));
    launcher_.SendToLauncher(NextRound());
  });
  const absl::StatusOr<LinkReForm> next = rounds_->AwaitNextRound(120, "");
  launcher.join();
  EXPECT_EQ(next->rank, 1);
  EXPECT_EQ(next->master_addr, "10.0.0.5");
  EXPECT_FALSE(rounds_->suspended());
  EXPECT_LE(*rounds_->suspended_at(), *rounds_->re_formed_at());
}

TEST_F(ElasticRoundsTest, Section5_4_NoSuspend_SendsFailedAndWaits) {
  std::thread launcher([this] {
    EXPECT_EQ(launcher_.Hear<LinkFailed>(), (LinkFailed{kRound, "connection reset"}));
    launcher_.SendToLauncher(LinkSuspend{.round = kRound});
    EXPECT_EQ(launcher_.Hear<LinkSuspended>(), (LinkSuspended{kRound, std::nullopt}));
    launcher_.SendToLauncher(NextRound());
  });
  const absl::StatusOr<LinkReForm> next = rounds_->AwaitNextRound(std::nullopt, "connection reset");
  launcher.join();
  EXPECT_TRUE(next.ok()) << next.status();
}

TEST_F(ElasticRoundsTest, LauncherGone_TheWaitEnds) {
  launcher_.Close();
  EXPECT_TRUE(absl::IsUnavailable(rounds_->AwaitNextRound(1, "").status()));
  EXPECT_FALSE(rounds_->linked());
}

TEST_F(ElasticRoundsTest, Section4_1_Stopped_TheWaitEnds) {
  launcher_.SendToLauncher(LinkStop{absl::Seconds(10), "received SIGTERM"});
  EXPECT_TRUE(absl::IsCancelled(rounds_->AwaitNextRound(1, "").status()));
  EXPECT_TRUE(link_->StopAt().has_value());
}

TEST_F(ElasticRoundsTest, Section4_1_Stopped_TheCreationOfAGroupEnds) {
  ASSERT_TRUE(rounds_->BeginGroup(creation_));
  launcher_.SendToLauncher(LinkStop{absl::Seconds(10), "received SIGTERM"});
  Settle();
  EXPECT_TRUE(creation_.stop_requested()) << "others may have ended already";
  EXPECT_FALSE(rounds_->BeginGroup(creation_));
}

// Waits for its store are cancelled, so the ranks could not save with it.
TEST_F(ElasticRoundsTest, Section4_1_Stop_NewGroup_IsNotUsed) {
  ASSERT_TRUE(rounds_->BeginGroup(creation_));
  launcher_.SendToLauncher(LinkStop{absl::Seconds(10), "received SIGTERM"});
  Settle();
  EXPECT_TRUE(creation_.stop_requested());
  EXPECT_FALSE(rounds_->UseGroup([](const std::string&) { ADD_FAILURE() << "the creator aborts it"; }));
}

TEST_F(ElasticRoundsTest, Section4_1_Stop_GroupInUse_IsKept) {
  const std::future<std::string> aborted = Use();
  launcher_.SendToLauncher(LinkStop{absl::Seconds(10), "received SIGTERM"});
  Settle();
  EXPECT_FALSE(creation_.stop_requested()) << "the ranks save together";
}

TEST_F(ElasticRoundsTest, Section2_5_LauncherDoesNotRead_MessagesArriveWhole) {
  const std::string message(400, 'x');
  constexpr int kLines = 5000;
  for (int i = 0; i < kLines; ++i) rounds_->SendToLauncher(LinkFailed{static_cast<uint64_t>(i), message});
  for (int i = 0; i < kLines; ++i) {
    const LinkFailed line = launcher_.Hear<LinkFailed>();
    ASSERT_EQ(line.round, i);
    ASSERT_EQ(line.message, message);
  }
}

TEST(ElasticRounds, WithoutALauncher_NoRoundFollows) {
  ElasticRounds rounds(kRound);
  EXPECT_FALSE(rounds.linked());
  EXPECT_TRUE(absl::IsUnavailable(rounds.AwaitNextRound(1, "").status()));
  LauncherLink nobody("", 0, 0, rounds.listener());
  rounds.set_link(&nobody);
  EXPECT_FALSE(rounds.linked());
  EXPECT_TRUE(absl::IsUnavailable(rounds.AwaitNextRound(1, "").status()));
}

}  // namespace
}  // namespace ddprun::testing
