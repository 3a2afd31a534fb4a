// Workers that outlive their round (docs/worker_protocol.md, section 5).
#include <gmock/gmock.h>
#include <signal.h>

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/launcher/machine/agent_machine_fixture.h"
#include "tests/testing/text_proto.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using State = AgentMachine::State;
using worker_contract::LinkHello;
using worker_contract::LinkReFormed;
using worker_contract::LinkSuspended;

constexpr absl::Duration kTimeout = absl::Seconds(600);  // heartbeat timeout: longer than all tests but one
constexpr absl::Duration kGrace = absl::Seconds(20);
constexpr SteadyTime kStart = SteadyTime::FromStart(absl::Seconds(1000));

// Three workers with ranks 4 to 6 of round 1; those in `aware` have connected.
class ReformTest : public AgentMachineTest {
 protected:
  void Run(const LocalRanks& aware = {0, 1, 2}, absl::Duration grace = kGrace) {
    AgentSettings settings = Settings();
    settings.join.set_slots(3);
    *settings.join.mutable_settings()->mutable_heartbeat_timeout() = FromDuration(kTimeout);
    settings.shutdown_timeout = grace;
    settings.reconnect_timeout = 2 * kTimeout;
    Start(std::move(settings));
    interval_ = kTimeout / 6;
    Join();
    Assign(1, false);
    for (const int32_t rank : aware) Link(rank, Hello());
  }

  static LinkHello Hello() { return {2, 0, 0, 1, {"progress", "stop", "re-form", "checkpoint"}}; }
  static WorkerEnd Killed(int32_t local_rank) {
    const rendezvous::WorkerFailure failure =
        TextProto(absl::StrCat("host: 'here' pid: 77 signal: 9 rank: ", 4 + local_rank, " local_rank: ", local_rank),
                  rendezvous::NewFailure());
    return {local_rank, failure, std::nullopt};
  }

  std::string Word(const AgentEffect& e) const override { return Render(e, true); }
  std::string Assign(uint64_t round, bool keeps, int32_t base_rank = 4, std::optional<int32_t> source = std::nullopt) {
    auto assignment = TextProto<rendezvous::Assignment>("group_world_size: 2 world_size: 7 reason: 'all nodes joined'");
    assignment.set_round(round);
    assignment.set_base_rank(base_rank);
    assignment.set_keeps_workers(keeps);
    if (source) assignment.set_state_source(*source);
    return Say(rendezvous::NewAssign(assignment));
  }
  std::string StopRound(uint64_t round, bool keep, bool at_step_end = false) {
    return Say(rendezvous::NewStopRound(round, "because", std::nullopt, keep, at_step_end));
  }
  std::string Link(int32_t rank, LinkEvent event) {
    machine_->OnLink(rank, event, now_, &effects_);
    return Take();
  }
  std::string Suspended(int32_t rank, std::optional<int64_t> step, uint64_t round = 1) {
    return Link(rank, LinkSuspended{round, step});
  }
  // Advances the time to the next deadline that has effects.
  std::string Wait() {
    while (true) {
      if (std::string words = Due(); !words.empty()) return words;
    }
  }
  // Starts anew. Worker 1 was killed; the others are suspended until the next round.
  void LoseOne() {
    Run();
    EXPECT_EQ(End({Killed(1)}), "failed 1 rank 5, suspend 1 blame 5[0 2]");
    StopRound(1, true);
    Suspended(0, 120);
    EXPECT_EQ(Suspended(2, 121), "store, ready 1 0:120 2:121 can");
  }
};

TEST_F(ReformTest, OneDies_OthersAreKept_OnlyItIsStarted) {
  Run();
  EXPECT_EQ(End({Killed(1)}), "failed 1 rank 5, suspend 1 blame 5[0 2]");
  EXPECT_EQ(StopRound(1, true), "") << "they have been told already";
  EXPECT_EQ(Suspended(0, 120), "");
  EXPECT_EQ(Suspended(2, std::nullopt), "store, ready 1 0:120 2:- can");
  EXPECT_EQ(machine_->state(), State::kIdle);
  EXPECT_EQ(machine_->WorkersMayRunUntil(), SteadyTime::InfiniteFuture()) << "suspended workers do not compute";
  EXPECT_EQ(Assign(2, true), "re-form 2[0 2], spawn 2[1]");
  EXPECT_THAT(printed_, HasSubstr("; keeping ranks 4, 6, starting rank 5\n"));
  EXPECT_EQ(machine_->state(), State::kRunning);
  // The new worker counts as aware before it has connected, but cannot be suspended yet.
  EXPECT_EQ(End({Killed(0)}), "failed 2 rank 4, suspend 2 blame 4[2], signal 15[1]");
}

TEST_F(ReformTest, DeathOnAnotherNode_AllAreSuspended) {
  Run();
  EXPECT_EQ(StopRound(1, true), "suspend 1[0 1 2]");
  EXPECT_THAT(printed_, HasSubstr("suspending this node's workers for a new round: because"));
  for (int rank : {0, 1}) EXPECT_EQ(Suspended(rank, 5), "");
  EXPECT_EQ(Suspended(2, 5), "store, ready 1 0:5 1:5 2:5 can");
  EXPECT_EQ(Assign(2, true, 0), "re-form 2[0 1 2], spawn 2[]");
  EXPECT_THAT(printed_, HasSubstr("; keeping ranks 0-2, starting no rank\n"));
}

TEST_F(ReformTest, OldServerOrMixedJobOrNoGrace_AllAreStopped) {
  Run();
  EXPECT_EQ(StopRound(1, false), "signal 15[0 1 2]");
  EXPECT_THAT(printed_, HasSubstr("stopping this node's workers for a new round: because"));
  Run({0, 1, 2}, absl::ZeroDuration());
  EXPECT_EQ(StopRound(1, true), "kill[0 1 2]") << "nobody could answer";
}

TEST_F(ReformTest, OnePlainWorker_AllAreStopped) {
  Run({0, 2});
  EXPECT_EQ(End({Killed(2)}), "failed 1 rank 6, signal 15[0 1]");
  EXPECT_THAT(printed_, HasSubstr("stopping all workers of this node, because rank 5 can't re-form\n"));
  EXPECT_EQ(End({Killed(0), Killed(1)}), "store, ready 1 can't");
}

TEST_F(ReformTest, NoAnswerInTheGrace_IsKilledAndReplaced) {
  Run();
  StopRound(1, true);
  Suspended(0, 5);
  Suspended(1, 5);
  EXPECT_EQ(Wait(), "kill[2]");
  EXPECT_EQ(now_, kStart + kGrace);
  EXPECT_THAT(printed_, HasSubstr("rank 6 did not suspend in time: killed"));
  EXPECT_EQ(Suspended(2, 5), "") << "it is too late";
  EXPECT_EQ(End({Killed(2)}), "store, ready 1 0:5 1:5 can");
  EXPECT_EQ(Assign(2, true), "re-form 2[0 1], spawn 2[2]");
}

TEST_F(ReformTest, AtStepEnd_HalfTheGraceForTheStep) {
  Run();
  EXPECT_EQ(StopRound(1, true, true), "suspend 1 at step end[0 1 2]");
  EXPECT_EQ(Suspended(0, 6), "") << "the others may finish their step all the same";
  EXPECT_EQ(Wait(), "suspend 1[1 2]");
  EXPECT_EQ(now_, kStart + kGrace / 2);
  Suspended(1, 5);
  EXPECT_EQ(Suspended(2, 5), "store, ready 1 0:6 1:5 2:5 can");
}

TEST_F(ReformTest, AtStepEnd_Failure_SuspendsNow) {
  Run();
  StopRound(1, true, true);
  EXPECT_EQ(End({Killed(0)}), "suspend 1[1 2]") << "it is not a failure of the round that is over";
  EXPECT_THAT(printed_, HasSubstr("was killed by SIGKILL, while it was suspended; a new process will take its place"));
  Run();
  StopRound(1, true, true);
  EXPECT_EQ(StopRound(1, true, false), "suspend 1[0 1 2]") << "it was on another node";
}

TEST_F(ReformTest, Suspended_Unrequested_IsIgnored) {
  Run();
  EXPECT_EQ(Suspended(0, 5), "");
  StopRound(1, true);
  EXPECT_EQ(Suspended(0, 5, 7), "") << "another round's";
  Suspended(1, 5);
  EXPECT_EQ(Suspended(2, 5), "");
  EXPECT_EQ(Suspended(0, 5), "store, ready 1 0:5 1:5 2:5 can");
  EXPECT_EQ(Link(0, LinkReFormed{1, 5, 0}), "");
}

TEST_F(ReformTest, Idle_SurvivorsDie_ReadyAgain) {
  LoseOne();
  EXPECT_EQ(End({Killed(0)}), "ready 1 2:121 can");
  EXPECT_EQ(Assign(2, true), "re-form 2[2], spawn 2[0 1]");
  LoseOne();
  EXPECT_EQ(End({Killed(0), Killed(2)}), "ready 1 can");
  EXPECT_EQ(Assign(2, true), "spawn 2[0 1 2]");
}

TEST_F(ReformTest, Idle_SurvivorDiesWithoutServer_IsReportedLater) {
  LoseOne();
  machine_->OnDisconnected("gone", false, std::nullopt, now_, &effects_);
  EXPECT_EQ(Connect(), "join 0:120 2:121 can");
  EXPECT_EQ(End({Killed(0)}), "");
  EXPECT_EQ(Welcome(), "ready 1 2:121 can");
}

TEST_F(ReformTest, Idle_StopWithoutKeep_SurvivorsAreStopped) {
  LoseOne();
  EXPECT_EQ(StopRound(1, false), "signal 15[0 2]");
  EXPECT_THAT(printed_, HasSubstr("stopping ranks 4, 6, which can't go on: because"));
  EXPECT_EQ(End({Killed(0)}), "");
  EXPECT_EQ(End({Killed(2)}), "store, ready 1 can");
  EXPECT_EQ(Assign(2, false), "spawn 2[0 1 2]");
}

// The server took the Ready for the answer to its StopRound and waited for the node forever.
TEST_F(ReformTest, Idle_ReadyCrossesTheStop_RoundIsSkipped) {
  LoseOne();
  EXPECT_EQ(End({Killed(0)}), "ready 1 2:121 can");
  EXPECT_EQ(StopRound(1, false), "signal 15[2]");
  EXPECT_EQ(Assign(2, true), "");
  EXPECT_EQ(End({Killed(2)}), "store, ready 2 can");
  EXPECT_EQ(Assign(3, false), "spawn 3[0 1 2]");
}

TEST_F(ReformTest, Suspending_StopWithoutKeep_AllAreStopped) {
  Run();
  End({Killed(1)});
  Suspended(0, 120);
  EXPECT_EQ(StopRound(1, false), "signal 15[0 2]");
  now_ = now_ + kGrace / 2;
  EXPECT_EQ(Suspended(2, 120), "");
  EXPECT_EQ(Wait(), "kill[0 2]");
  EXPECT_EQ(now_, kStart + kGrace);
}

TEST_F(ReformTest, OpeningStore_StopWithoutKeep_SurvivorsAreStopped) {
  Run();
  store_opens_ = false;
  End({Killed(1)});
  Suspended(0, 120);
  EXPECT_EQ(Suspended(2, 120), "store");
  EXPECT_EQ(StopRound(1, false), "signal 15[0 2]");
  machine_->OnStoreOpened({9}, now_, &effects_);
  EXPECT_EQ(Take(), "") << "workers are left";
  store_opens_ = true;
  EXPECT_EQ(End({Killed(0), Killed(2)}), "store, ready 1 can");
}

TEST_F(ReformTest, AssignKeepsNoWorkers_SurvivorsAreKilledFirst) {
  LoseOne();
  EXPECT_EQ(Assign(2, false), "kill[0 2]");
  EXPECT_EQ(End({Killed(2)}), "");
  EXPECT_EQ(End({Killed(0)}), "spawn 2[0 1 2]");
}

TEST_F(ReformTest, LinkBreaks_WhileSuspendedOrSuspending_KilledAndReplaced) {
  LoseOne();
  EXPECT_EQ(Link(0, LinkClosed{}), "kill[0]");
  EXPECT_EQ(Assign(2, true), "") << "not before it is gone";
  EXPECT_EQ(End({Killed(0)}), "re-form 2[2], spawn 2[0 1]");
  Run();
  End({Killed(1)});
  Suspended(0, 3);
  EXPECT_EQ(Link(2, LinkClosed{}), "kill[2]");
  EXPECT_EQ(End({Killed(2)}), "store, ready 1 0:3 can");
}

TEST_F(ReformTest, LinkBreaks_StopBeforeAssign_RoundIsSkipped) {
  LoseOne();
  Link(0, LinkClosed{});
  Assign(2, true);
  EXPECT_EQ(StopRound(2, true), "ready 2 2:121 can");
  EXPECT_EQ(End({Killed(0)}), "ready 2 2:121 can");
}

TEST_F(ReformTest, LinkBreaks_SurvivesSigkill_IsAbandoned) {
  LoseOne();
  Link(0, LinkClosed{});
  EXPECT_EQ(Wait(), "stuck[0], failed 1 rank 0 stuck, ready 1 2:121 can");
  EXPECT_EQ(now_, kStart + absl::Seconds(30));
}

TEST_F(ReformTest, LinkBreaks_WhileRunning_WorkerIsStoppedAtTheNextRound) {
  Run();
  EXPECT_EQ(Link(1, LinkClosed{}), "");
  EXPECT_EQ(StopRound(1, true), "suspend 1[0 2], signal 15[1]");
}

TEST_F(ReformTest, LinkBreaks_WhileReforming_IsAFailureOfTheRound) {
  LoseOne();
  Assign(2, true);
  EXPECT_EQ(Link(2, LinkReFormed{2, 121, 6}), "");
  EXPECT_THAT(printed_, HasSubstr("rank 6 is part of round 2 at step 121, with the state of rank 6"));
  EXPECT_EQ(Link(2, LinkClosed{}), "") << "it is part of the round";
  EXPECT_EQ(Link(0, LinkClosed{}), "kill[0]");
  Link(1, Hello());
  EXPECT_EQ(End({Killed(0)}), "failed 2 rank 4, suspend 2 blame 4[1], signal 15[2]");
}

GroupBroken Broken(uint64_t round, int32_t local_rank) {
  return {round, TextProto(absl::StrCat("message: 'lost a peer' rank: ", 4 + local_rank, " local_rank: ", local_rank),
                           rendezvous::NewFailure())};
}

TEST_F(ReformTest, GroupBroken_HeldBack_ThenEndsTheRound) {
  Run();
  EXPECT_EQ(Link(2, Broken(1, 2)), "");
  EXPECT_EQ(Link(1, Broken(1, 1)), "") << "the first one counts";
  EXPECT_EQ(Wait(), "failed 1 rank 6, suspend 1 blame 6[0 1 2]");
  EXPECT_EQ(now_, kStart + absl::Seconds(1));
}

TEST_F(ReformTest, GroupBroken_ProcessEnds_IsExplainedByIt) {
  Run();
  Link(2, Broken(1, 2));
  EXPECT_EQ(End({Killed(0)}), "failed 1 rank 4, suspend 1 blame 4[1 2]");
  Suspended(1, 1);
  EXPECT_EQ(Suspended(2, 1), "store, ready 1 1:1 2:1 can");
  Assign(2, true);
  const SteadyTime next = machine_->NextDeadline();
  Link(2, Broken(1, 2));
  EXPECT_EQ(machine_->NextDeadline(), next) << "it is of the round before";
  Link(2, Broken(2, 2));
  EXPECT_EQ(StopRound(2, true), "suspend 2[1 2], signal 15[0]") << "explained by another node";
  EXPECT_EQ(machine_->NextDeadline(), kStart + kGrace) << "nothing is held back any more";
}

TEST_F(ReformTest, SignalOrFinish_StopsSuspendedWorkersToo) {
  LoseOne();
  EXPECT_EQ(Signal(SIGTERM), "leave, signal 15[0 2]");
  EXPECT_EQ(Wait(), "kill[0 2]");
  EXPECT_EQ(End({Killed(0), Killed(2)}), "exit 143");
  LoseOne();
  EXPECT_EQ(Say(rendezvous::NewFinish(TextProto<rendezvous::Verdict>("exit_code: 1"))), "signal 15[0 2]");
  EXPECT_EQ(End({Killed(0), Killed(2)}), "exit 1");
}

TEST_F(ReformTest, SignalWhileSuspending_StopsThemWithANewGrace) {
  Run();
  End({Killed(1)});
  Suspended(0, 1);
  now_ = now_ + kGrace / 2;
  EXPECT_EQ(Signal(SIGINT), "leave, signal 2[0 2]");
  EXPECT_EQ(Suspended(2, 1), "");
  EXPECT_EQ(Wait(), "kill[0 2]");
  EXPECT_EQ(now_, kStart + kGrace / 2 + kGrace);
}

TEST_F(ReformTest, CutOff_SuspendedInTime_AreKept) {
  Run();
  machine_->OnDisconnected("gone", false, std::nullopt, now_, &effects_);
  Take();
  std::string words;
  while (machine_->state() == State::kRunning) words = Wait();
  EXPECT_EQ(words, "suspend 1[0 1 2]");
  EXPECT_LE(machine_->NextDeadline(), kStart + kTimeout);
  for (int rank : {0, 1}) Suspended(rank, 9);
  EXPECT_EQ(Suspended(2, 9), "store");
  EXPECT_EQ(machine_->WorkersMayRunUntil(), SteadyTime::InfiniteFuture());
  EXPECT_EQ(Connect(), "join 0:9 1:9 2:9 can");
}

TEST_F(ReformTest, Warning_AwareWorkers_WriteACheckpoint) {
  Run({0, 2});
  machine_->OnSignal({SIGUSR1, "SIGUSR1", false, absl::Seconds(25)}, now_, &effects_);
  EXPECT_EQ(Take(), "signal 10[0 1 2], checkpoint 25s[0 2]");
  now_ = now_ + absl::Seconds(5);
  EXPECT_EQ(Link(1, Hello()), "checkpoint 20s[1]") << "it had not connected yet";
  EXPECT_EQ(Link(1, Hello()), "") << "it knows";
  LoseOne();
  machine_->OnSignal({SIGUSR1, "SIGUSR1"}, now_, &effects_);
  EXPECT_EQ(Take(), "signal 10[0 2], checkpoint 277777h46m40s[0 2]") << "suspended ones too";
}

// The job keeps workers, or another node holds the state: all of the node's workers are new, so the server does not
// report survivors.
TEST_F(ReformTest, NewNode_CountsAsAware) {
  for (const bool keeps : {true, false}) {
    Run({});
    End({Killed(0)});
    End({Killed(1), Killed(2)});
    EXPECT_EQ(Assign(2, keeps, 4, keeps ? std::nullopt : std::optional<int32_t>(0)), "spawn 2[0 1 2]");
    EXPECT_EQ(StopRound(2, true), "signal 15[0 1 2]");
    EXPECT_EQ(End({Killed(0), Killed(1), Killed(2)}), "store, ready 2 can");
  }
}

}  // namespace
}  // namespace ddprun::launcher
