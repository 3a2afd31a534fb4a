// A launcher that is cut off from the rendezvous server stops its workers in time (protocol 4.5).
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <string>

#include "tests/launcher/machine/agent_machine_fixture.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;
using State = AgentMachine::State;

constexpr absl::Duration kTimeout = absl::Seconds(12);  // heartbeat timeout
constexpr SteadyTime kStart = SteadyTime::FromStart(absl::Seconds(1000));

class CutOffTest : public AgentMachineTest {
 protected:
  CutOffTest() {
    AgentSettings settings = Settings();
    *settings.join.mutable_settings()->mutable_heartbeat_timeout() = FromDuration(kTimeout);
    settings.shutdown_timeout = absl::Seconds(100);
    settings.reconnect_timeout = absl::Seconds(60);
    Start(settings);
    interval_ = kTimeout / 6;
    Run();
  }
  // Handles all deadlines until this many seconds after the start. Heartbeats are left out of the words.
  std::string Until(double seconds) {
    const SteadyTime end = kStart + absl::Seconds(seconds);
    while (machine_->NextDeadline() <= end) {
      now_ = std::max(now_, machine_->NextDeadline());
      machine_->OnDeadline(now_, &effects_);
    }
    now_ = end;
    std::erase_if(effects_, [](const AgentEffect& e) { return Render(e) == "heartbeat"; });
    return Take();
  }
  std::string Acknowledge() { return Say(rendezvous::HeartbeatAck{}); }
  std::string Disconnect(std::optional<SteadyTime> refused = std::nullopt) {
    machine_->OnDisconnected("lost", false, refused, now_, &effects_);
    return Take();
  }
  // Round 1 ends, and the Assign of round 2 is read when the lease has expired.
  std::string ReadAssignTooLate() {
    Say(rendezvous::NewStopRound(1, ""));
    EndBadly();
    now_ = kStart + absl::Seconds(10);
    return Say(rendezvous::NewAssign(Round(2)));
  }
  // Reconnects; returns whether the Join says that no round was assigned without this node.
  bool RejoinInTouch(uint64_t missed_round = 0) {
    Disconnect();
    machine_->OnConnected("", now_, &effects_);
    const bool in_touch = Sent<rendezvous::Join>(effects_)->in_touch();
    Take();
    rendezvous::Welcome welcome = WelcomeEvery(interval_);
    welcome.set_missed_round(missed_round);
    Say(welcome);
    return in_touch;
  }
};

TEST_F(CutOffTest, MayStartWorkers_LeaseExpired_IsFalse) {
  EXPECT_TRUE(machine_->MayStartWorkers(kStart));
  EXPECT_TRUE(machine_->MayStartWorkers(kStart + absl::Seconds(9.9)));
  EXPECT_FALSE(machine_->MayStartWorkers(kStart + absl::Seconds(10))) << "OnDeadline comes late";
  Until(2);
  Acknowledge();
  EXPECT_TRUE(machine_->MayStartWorkers(kStart + absl::Seconds(11.9)));
  Say(rendezvous::NewStopRound(1, ""));
  EXPECT_FALSE(machine_->MayStartWorkers(now_)) << "the round is being stopped";
}

TEST_F(CutOffTest, Silence_StreamIsResetAtHalf_WorkersStoppedAtFiveSixthsKilledAtElevenTwelfths) {
  EXPECT_EQ(Until(5.9), "");
  EXPECT_EQ(Until(6), "reset");
  EXPECT_THAT(printed_, HasSubstr("not responding); trying again for 1m; workers run on for 4s\n"));
  Disconnect();
  EXPECT_EQ(Until(9.9), "");
  EXPECT_EQ(Until(10), "signal 15");
  EXPECT_THAT(printed_, HasSubstr("cut off from the rendezvous server at 10.0.0.1:29400 for 10s"));
  EXPECT_EQ(Until(10.9), "");
  EXPECT_EQ(Until(11), "kill") << "whatever --shutdown-timeout says";
}

TEST_F(CutOffTest, WorkersGone_NodeRejoinsAsIdle) {
  Until(10);
  EXPECT_EQ(EndBadly(), "sweep, store") << "that was no failure";
  EXPECT_EQ(machine_->WorkersMayRunUntil(), SteadyTime::InfiniteFuture());
  Until(65.9);
  EXPECT_EQ(machine_->state(), State::kIdle);
  EXPECT_EQ(Connect(), "join 2 idle");
  Welcome();
  EXPECT_EQ(Say(rendezvous::NewAssign(Round(2))), "spawn 2");
}

TEST_F(CutOffTest, StaysCutOff_EndsAfterTheReconnectTimeout) {
  Until(10);
  EndBadly();
  Until(66);
  EXPECT_EQ(machine_->state(), State::kDone);
}

TEST_F(CutOffTest, ServerGone_WorkersContinueForTheReconnectTimeout) {
  Until(5);
  Disconnect();
  // The last answered heartbeat is that of the Join.
  EXPECT_THAT(printed_,
              HasSubstr("lost); trying again for 1m; workers run on for 5s, and longer while no server is running\n"));
  for (int second = 6; second < 65; ++second) {
    Until(second);
    Disconnect(now_ - absl::Seconds(0.5));
  }
  EXPECT_EQ(machine_->state(), State::kRunning);
  EXPECT_EQ(machine_->WorkersMayRunUntil(), kStart + absl::Seconds(63.5 + 11));
  Until(66);
  EXPECT_EQ(machine_->state(), State::kStopping) << "the reconnect timeout";
}

TEST_F(CutOffTest, AbandonedStream_Messages_AreDropped) {
  Until(6);
  Say(rendezvous::Finish{});
  EXPECT_EQ(machine_->state(), State::kRunning);
}

// A launcher that was stopped for a while reads messages of that age.
TEST_F(CutOffTest, AssignReadTooLate_ServerAnswers_IsAccepted) {
  EXPECT_EQ(ReadAssignTooLate(), "heartbeat");
  EXPECT_EQ(Say(rendezvous::Waiting{}), "") << "no answer to that";
  EXPECT_EQ(Acknowledge(), "spawn 2");
  EXPECT_EQ(machine_->WorkersMayRunUntil(), kStart + absl::Seconds(21));
}

TEST_F(CutOffTest, AssignReadTooLate_RoundIsOver_IsAnsweredByReady) {
  ReadAssignTooLate();
  EXPECT_EQ(Say(rendezvous::NewStopRound(2, "")), "ready 2");
  EXPECT_EQ(Acknowledge(), "");
}

TEST_F(CutOffTest, AssignReadTooLate_StreamLost_IsDropped) {
  ReadAssignTooLate();
  Disconnect();
  Connect();
  EXPECT_EQ(Welcome(), "") << "the server tells it again, if it still counts";
}

TEST_F(CutOffTest, WorkersKilledByTheGuard_AreNoFailure) {
  now_ = kStart + absl::Seconds(30);
  EXPECT_EQ(EndBadly(), "signal 15, kill, sweep, store, ready 1");
  EXPECT_EQ(machine_->state(), State::kIdle);
}

TEST_F(CutOffTest, StoppingForANewRound_IsBoundedByTheLease) {
  Until(1);
  Say(rendezvous::NewStopRound(1, ""));
  EXPECT_EQ(Until(10.9), "reset");
  EXPECT_EQ(Until(11), "kill");
}

TEST_F(CutOffTest, Leaving_HeartbeatsContinue) {
  Until(1);
  machine_->OnSignal({SIGTERM, "SIGTERM"}, now_, &effects_);
  EXPECT_TRUE(Sent<rendezvous::Leave>(effects_)->has_workers());
  Take();
  for (int second = 2; second < 101; ++second) {
    EXPECT_EQ(Until(second), "");
    Acknowledge();
  }
  EXPECT_EQ(Until(101), "kill");
}

TEST_F(CutOffTest, LeavingAndCutOff_WorkersAreKilledInTime) {
  Until(1);
  EXPECT_EQ(Signal(SIGTERM), "leave, signal 15");
  EXPECT_EQ(Until(11), "reset, kill");
}

TEST_F(CutOffTest, Finished_WorkersHaveTheirGrace) {
  Until(1);
  Say(rendezvous::Finish{});
  EXPECT_EQ(machine_->WorkersMayRunUntil(), SteadyTime::InfiniteFuture());
  EXPECT_EQ(Until(100), "");
}

// Ends of workers between the Join and its answer must not be lost.
TEST_F(CutOffTest, WorkersStoppedBeforeTheWelcome_ReadyFollows) {
  Until(9.9);
  Disconnect();
  EXPECT_EQ(Connect(), "join 2 running");
  Until(10);
  EndBadly();
  EXPECT_EQ(Welcome(), "ready 1");
}

// Protocol 4.5: the Join reports whether rounds may have been assigned without this node.
TEST_F(CutOffTest, Join_HasInTouchSinceItsRound) {
  EXPECT_TRUE(RejoinInTouch(0));
  EXPECT_TRUE(RejoinInTouch(1)) << "it was assigned a round after that";
  EXPECT_TRUE(RejoinInTouch(2));
  EXPECT_FALSE(RejoinInTouch(0)) << "round 2 was assigned without it";
}

// Protocol 3.9.
TEST_F(CutOffTest, ExcludedFromRound_IsAnsweredByReady_NodeIsNotInTouch) {
  Say(rendezvous::NewStopRound(1, ""));
  EXPECT_EQ(EndBadly(), "sweep, store, ready 1");
  EXPECT_TRUE(RejoinInTouch());
  EXPECT_EQ(Say(rendezvous::NewExcludedFromRound(1, "of a round that it had")), "");
  EXPECT_EQ(Say(rendezvous::NewExcludedFromRound(2, "node here is left out for 1m")), "ready 1 left out");
  EXPECT_EQ(printed_, "node here is left out for 1m\n");
  EXPECT_FALSE(RejoinInTouch());
  Say(rendezvous::NewAssign(Round(3)));
  EXPECT_TRUE(RejoinInTouch());
  Say(rendezvous::NewStopRound(3, ""));
  EXPECT_EQ(EndBadly(), "sweep, store, ready 3");
}

}  // namespace
}  // namespace ddprun::launcher
