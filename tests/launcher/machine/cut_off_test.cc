// A launcher that is cut off from the rendezvous server stops its workers in time (protocol 4.5).
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "launcher/machine/agent_machine.h"
#include "tests/launcher/machine/agent_machine_fixture.h"
#include "tests/launcher/machine/welcome.h"
#include "tests/testing/text_proto.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Assignment;
using rendezvous::HeartbeatAck;
using State = AgentMachine::State;

constexpr absl::Duration kTimeout = absl::Seconds(12);  // heartbeat timeout
constexpr SteadyTime kStart = SteadyTime::FromStart(absl::Seconds(1000));

class CutOffTest : public ::testing::Test {
 protected:
  CutOffTest() : machine_(Settings(), kStart) {
    machine_.Start(now_, &effects_);
    machine_.OnStoreOpened({1}, now_, &effects_);
    machine_.OnConnected(now_, &effects_);
    Say(WelcomeEvery(kTimeout / 6));
    Say(rendezvous::NewAssign(Round(1)));
    Clear();
  }

  static AgentSettings Settings() {
    AgentSettings settings;
    settings.join.set_host("here");
    settings.join.set_slots(1);
    *settings.join.mutable_settings()->mutable_heartbeat_timeout() = FromDuration(kTimeout);
    settings.server = "10.0.0.1:29400";
    settings.shutdown_timeout = absl::Seconds(100);
    settings.reconnect_timeout = absl::Seconds(60);
    return settings;
  }
  static Assignment Round(uint64_t round) {
    return TextProto<Assignment>(absl::StrCat("group_world_size: 2 world_size: 2 round: ", round));
  }

  // Handles all deadlines until this many seconds after the start.
  void Until(double seconds) {
    const SteadyTime end = kStart + absl::Seconds(seconds);
    while (machine_.NextDeadline() <= end) {
      now_ = std::max(now_, machine_.NextDeadline());
      machine_.OnDeadline(now_, &effects_);
    }
    now_ = end;
  }
  void Say(const rendezvous::ServerMessage& message) { machine_.OnServerMessage(message, now_, &effects_); }
  void Disconnect(std::optional<SteadyTime> refused = std::nullopt) {
    machine_.OnDisconnected("lost", false, refused, now_, &effects_);
  }
  void EndWorker() {
    machine_.OnWorkersEnded({{0, TextProto("signal: 15", rendezvous::NewFailure())}}, now_, &effects_);
    // The shell opens the store on request.
    if (Count<effect::OpenStore>() > 0) machine_.OnStoreOpened({2}, now_, &effects_);
  }
  void Clear() { effects_.clear(); }
  // Round 1 ends, and the Assign of round 2 is read when the lease has expired.
  void ReadAssignTooLate() {
    Say(rendezvous::NewStopRound(1, ""));
    EndWorker();
    Clear();
    now_ = kStart + absl::Seconds(10);
    Say(rendezvous::NewAssign(Round(2)));
  }

  template <typename Effect>
  int Count() const {
    int count = 0;
    for (const AgentEffect& e : effects_) count += std::holds_alternative<Effect>(e) ? 1 : 0;
    return count;
  }
  template <typename Message>
  const Message* Sent() const {
    return launcher::Sent<Message>(effects_);
  }
  std::string Printed() const { return launcher::Printed(effects_); }

  SteadyTime now_ = kStart;
  AgentMachine machine_;
  AgentMachine::Effects effects_;
};

TEST_F(CutOffTest, MayStartWorkers_NotOnceTheLeaseIsOver_WhateverTheLauncherHasSeen) {
  EXPECT_TRUE(machine_.MayStartWorkers(kStart));
  EXPECT_TRUE(machine_.MayStartWorkers(kStart + absl::Seconds(9.9)));
  EXPECT_FALSE(machine_.MayStartWorkers(kStart + absl::Seconds(10))) << "OnDeadline comes late";
  Until(2);
  Say(HeartbeatAck{});
  EXPECT_TRUE(machine_.MayStartWorkers(kStart + absl::Seconds(11.9)));
  Say(rendezvous::NewStopRound(1, ""));
  EXPECT_FALSE(machine_.MayStartWorkers(now_)) << "the round is being stopped";
}

TEST_F(CutOffTest, Silence_StreamIsResetAtHalf_WorkersStoppedAtFiveSixthsKilledAtElevenTwelfths) {
  Until(5.9);
  EXPECT_EQ(Count<effect::ResetConnection>(), 0);
  Until(6);
  EXPECT_EQ(Count<effect::ResetConnection>(), 1);
  EXPECT_NE(Printed().find("not responding); trying again for 1m; workers run on for 4s\n"), std::string::npos)
      << Printed();
  Disconnect();
  Until(9.9);
  EXPECT_EQ(Count<effect::SignalWorkers>(), 0);
  Until(10);
  EXPECT_EQ(std::get<effect::SignalWorkers>(effects_[effects_.size() - 2]).signal, SIGTERM);
  EXPECT_NE(Printed().find("cut off from the rendezvous server at 10.0.0.1:29400 for 10s"), std::string::npos)
      << Printed();
  Until(10.9);
  EXPECT_EQ(Count<effect::KillWorkers>(), 0);
  Until(11);
  EXPECT_EQ(Count<effect::KillWorkers>(), 1) << "whatever --shutdown-timeout says";
}

TEST_F(CutOffTest, WorkersGone_NodeIsIdleAndJoinsAgainAsSuch) {
  Until(10);
  EndWorker();
  EXPECT_EQ(machine_.WorkersMayRunUntil(), SteadyTime::InfiniteFuture());
  EXPECT_EQ(Sent<rendezvous::WorkerFailed>(), nullptr) << "that was no failure";
  Until(65.9);
  EXPECT_EQ(machine_.state(), State::kIdle);
  Clear();
  machine_.OnConnected(now_, &effects_);
  ASSERT_NE(Sent<rendezvous::Join>(), nullptr);
  EXPECT_EQ(Sent<rendezvous::Join>()->phase(), rendezvous::Join::PHASE_IDLE);
  Say(WelcomeEvery(kTimeout / 6));
  Say(rendezvous::NewAssign(Round(2)));
  EXPECT_EQ(machine_.state(), State::kRunning);
}

TEST_F(CutOffTest, StaysCutOff_EndsAfterTheReconnectTimeout) {
  Until(10);
  EndWorker();
  Until(66);
  EXPECT_EQ(machine_.state(), State::kDone);
}

TEST_F(CutOffTest, ServerEndsTheStreamAndIsGone_WorkersRunOnForTheReconnectTimeout) {
  Until(5);
  Disconnect();
  // The last answered heartbeat is that of the Join.
  const std::string told = "lost); trying again for 1m; workers run on for 5s, and longer while no server is running\n";
  EXPECT_NE(Printed().find(told), std::string::npos) << Printed();
  for (int second = 6; second < 65; ++second) {
    Until(second);
    Disconnect(now_ - absl::Seconds(0.5));
  }
  EXPECT_EQ(machine_.state(), State::kRunning);
  EXPECT_EQ(machine_.WorkersMayRunUntil(), kStart + absl::Seconds(63.5 + 11));
  Until(66);
  EXPECT_EQ(machine_.state(), State::kStopping) << "the reconnect timeout";
}

TEST_F(CutOffTest, MessagesOfAStreamThatWasGivenUp_AreDropped) {
  Until(6);
  Say(rendezvous::Finish{});
  EXPECT_EQ(machine_.state(), State::kRunning);
}

// A launcher that was stopped for a while reads messages of that age.
TEST_F(CutOffTest, AssignReadTooLate_IsTakenOnceTheServerHasAnsweredAgain) {
  ReadAssignTooLate();
  EXPECT_EQ(Count<effect::SpawnWorkers>(), 0);
  EXPECT_EQ(Count<effect::ResetConnection>(), 0);
  EXPECT_NE(Sent<rendezvous::Heartbeat>(), nullptr);
  Say(rendezvous::Waiting{});
  EXPECT_EQ(Count<effect::SpawnWorkers>(), 0) << "no answer to that";
  Say(rendezvous::HeartbeatAck{});
  EXPECT_EQ(Count<effect::SpawnWorkers>(), 1);
  EXPECT_EQ(machine_.WorkersMayRunUntil(), kStart + absl::Seconds(21));
}

TEST_F(CutOffTest, AssignReadTooLate_RoundIsOver_IsAnsweredByReady) {
  ReadAssignTooLate();
  Say(rendezvous::NewStopRound(2, ""));
  Say(rendezvous::HeartbeatAck{});
  EXPECT_EQ(Count<effect::SpawnWorkers>(), 0);
  ASSERT_NE(Sent<rendezvous::Ready>(), nullptr);
  EXPECT_EQ(Sent<rendezvous::Ready>()->left_round(), 2u);
}

TEST_F(CutOffTest, AssignReadTooLate_StreamLostMeanwhile_IsForgotten) {
  ReadAssignTooLate();
  Disconnect();
  machine_.OnConnected(now_, &effects_);
  Say(WelcomeEvery(kTimeout / 6));
  EXPECT_EQ(Count<effect::SpawnWorkers>(), 0) << "the server tells it again, if it still counts";
}

TEST_F(CutOffTest, WorkersKilledByTheGuardMeanwhile_AreNoFailure) {
  now_ = kStart + absl::Seconds(30);
  EndWorker();
  EXPECT_EQ(machine_.state(), State::kIdle);
  EXPECT_EQ(Sent<rendezvous::WorkerFailed>(), nullptr);
}

TEST_F(CutOffTest, StoppingForANewRound_IsBoundedAsWell) {
  Until(1);
  Say(rendezvous::NewStopRound(1, ""));
  Until(10.9);
  EXPECT_EQ(Count<effect::KillWorkers>(), 0);
  Until(11);
  EXPECT_EQ(Count<effect::KillWorkers>(), 1);
}

TEST_F(CutOffTest, Leaving_BeatsGoOnAndTheGraceIsThatOfTheFlag) {
  Until(1);
  machine_.OnSignal(Signal{SIGTERM, "SIGTERM"}, now_, &effects_);
  ASSERT_NE(Sent<rendezvous::Leave>(), nullptr);
  EXPECT_TRUE(Sent<rendezvous::Leave>()->has_workers());
  for (int second = 2; second < 101; ++second) {
    Until(second);
    Say(HeartbeatAck{});
  }
  EXPECT_EQ(Count<effect::KillWorkers>(), 0);
  Until(101);
  EXPECT_EQ(Count<effect::KillWorkers>(), 1);
}

TEST_F(CutOffTest, LeavingAndCutOff_WorkersAreKilledInTime) {
  Until(1);
  machine_.OnSignal(Signal{SIGTERM, "SIGTERM"}, now_, &effects_);
  Until(11);
  EXPECT_EQ(Count<effect::KillWorkers>(), 1);
}

TEST_F(CutOffTest, AfterTheVerdict_WorkersHaveTheirGrace) {
  Until(1);
  Say(rendezvous::Finish{});
  EXPECT_EQ(machine_.WorkersMayRunUntil(), SteadyTime::InfiniteFuture());
  Until(100);
  EXPECT_EQ(Count<effect::KillWorkers>(), 0);
}

// Ends of workers between the Join and its answer must not be lost.
TEST_F(CutOffTest, WorkersStoppedBeforeTheWelcome_ReadyFollows) {
  Until(9.9);
  Disconnect();
  machine_.OnConnected(now_, &effects_);
  EXPECT_EQ(Sent<rendezvous::Join>()->phase(), rendezvous::Join::PHASE_RUNNING);
  Until(10);
  EndWorker();
  Say(WelcomeEvery(kTimeout / 6));
  EXPECT_NE(Sent<rendezvous::Ready>(), nullptr);
}

// Protocol 4.5: the Join reports whether rounds may have been assigned without this node.
TEST_F(CutOffTest, Join_SaysWhetherItWasInTouchSinceItsRound) {
  const auto rejoin = [this](uint64_t missed_round) {
    Disconnect();
    Clear();
    machine_.OnConnected(now_, &effects_);
    const bool in_touch = Sent<rendezvous::Join>()->in_touch();
    rendezvous::Welcome welcome = WelcomeEvery(kTimeout / 6);
    welcome.set_missed_round(missed_round);
    Say(welcome);
    return in_touch;
  };
  EXPECT_TRUE(rejoin(0));
  EXPECT_TRUE(rejoin(1)) << "it was assigned a round after that";
  EXPECT_TRUE(rejoin(2));
  EXPECT_FALSE(rejoin(0)) << "round 2 was assigned without it";
}

// Protocol 3.9.
TEST_F(CutOffTest, ExcludedFromRound_IsAnsweredByReady_AndTheNodeIsNotInTouchUntilItsNextRound) {
  const auto in_touch = [this] {
    Clear();
    Disconnect();
    machine_.OnConnected(now_, &effects_);
    const bool in_touch = Sent<rendezvous::Join>()->in_touch();
    Say(WelcomeEvery(kTimeout / 6));
    Clear();
    return in_touch;
  };
  Say(rendezvous::NewStopRound(1, ""));
  EndWorker();
  EXPECT_FALSE(Sent<rendezvous::Ready>()->left_out());
  EXPECT_TRUE(in_touch());
  Say(rendezvous::NewExcludedFromRound(1, "of a round that it had"));
  EXPECT_EQ(Sent<rendezvous::Ready>(), nullptr);
  Say(rendezvous::NewExcludedFromRound(2, "node here is left out for 1m"));
  ASSERT_NE(Sent<rendezvous::Ready>(), nullptr);
  EXPECT_TRUE(Sent<rendezvous::Ready>()->left_out());
  EXPECT_EQ(Printed(), "node here is left out for 1m\n");
  EXPECT_FALSE(in_touch());
  Say(rendezvous::NewAssign(Round(3)));
  EXPECT_TRUE(in_touch());
  Say(rendezvous::NewStopRound(3, ""));
  EndWorker();
  EXPECT_FALSE(Sent<rendezvous::Ready>()->left_out());
}

}  // namespace
}  // namespace ddprun::launcher
