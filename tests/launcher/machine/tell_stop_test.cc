// Notifying workers of the time they have to save (docs/worker_protocol.md 4.1).
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/launcher/machine/agent_machine_fixture.h"

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(12);  // heartbeat timeout
constexpr SteadyTime kStart = SteadyTime::FromStart(absl::Seconds(1000));

class TellStopTest : public AgentMachineTest {
 protected:
  void Run(absl::Duration grace, bool batch = false) {
    AgentSettings settings = Settings();
    *settings.join.mutable_settings()->mutable_heartbeat_timeout() = FromDuration(kTimeout);
    settings.shutdown_timeout = grace;
    if (batch) settings.batch = BatchSystem{.signals_every_process = true};
    Start(std::move(settings));
    interval_ = kTimeout / 6;
    AgentMachineTest::Run();
  }

  // The stop sent to the workers; only signals may follow it.
  const effect::NotifyStop* Told() const {
    for (const AgentEffect& e : effects_) {
      if (const auto* told = std::get_if<effect::NotifyStop>(&e)) return told;
      EXPECT_FALSE(std::holds_alternative<effect::SignalWorkers>(e)) << "the deadline comes before the signal";
    }
    return nullptr;
  }
};

TEST_F(TellStopTest, StopRound_NotifiesGraceAndReason) {
  Run(absl::Seconds(30));
  now_ = now_ + absl::Seconds(1);
  machine_->OnServerMessage(rendezvous::NewStopRound(1, "node b joined", std::nullopt), now_, &effects_);
  ASSERT_NE(Told(), nullptr);
  EXPECT_EQ(Told()->ranks, LocalRanks({0, 1}));
  EXPECT_EQ(Told()->killed_at, now_ + absl::Seconds(30)) << "although the lease, which is renewed, ends before";
  EXPECT_EQ(Told()->reason, "node b joined");
}

TEST_F(TellStopTest, WorkerFailed_OthersAreNotified) {
  Run(absl::Seconds(30));
  const rendezvous::WorkerFailure failure =
      TextProto("host: 'here' rank: 0 local_rank: 0 pid: 77 exit_code: 3", rendezvous::NewFailure());
  machine_->OnWorkersEnded({{0, failure}}, now_, &effects_);
  ASSERT_NE(Told(), nullptr);
  EXPECT_EQ(Told()->ranks, LocalRanks({1}));
  EXPECT_EQ(Told()->reason, "rank 0 on here (local rank 0, pid 77) exited with code 3");
}

TEST_F(TellStopTest, Signal_AlsoOfABatchSystem_IsNotified) {
  for (const bool batch : {false, true}) {
    Run(absl::Seconds(27), batch);
    machine_->OnSignal({SIGTERM, "SIGTERM", batch, absl::InfiniteDuration()}, now_, &effects_);
    ASSERT_NE(Told(), nullptr) << batch;
    EXPECT_EQ(Told()->killed_at, now_ + absl::Seconds(27));
    EXPECT_EQ(Told()->reason, "received SIGTERM");
  }
}

TEST_F(TellStopTest, CutOff_WorkersHaveLessTimeThanTheGrace) {
  Run(absl::Seconds(100));
  while (Told() == nullptr) {
    now_ = machine_->NextDeadline();
    ASSERT_LT(now_, kStart + kTimeout);
    machine_->OnDeadline(now_, &effects_);
  }
  EXPECT_EQ(now_, kStart + kTimeout * 5 / 6);
  EXPECT_EQ(Told()->killed_at, kStart + kTimeout * 11 / 12);
  EXPECT_EQ(Told()->reason, "cut off from the rendezvous server");
}

TEST_F(TellStopTest, NoGrace_NothingIsNotified) {
  Run(absl::ZeroDuration());
  machine_->OnServerMessage(rendezvous::NewStopRound(1, "node b joined", std::nullopt), now_, &effects_);
  EXPECT_EQ(Told(), nullptr);
}

}  // namespace
}  // namespace ddprun::launcher
