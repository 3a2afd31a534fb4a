#include "launcher/machine/agent_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <optional>
#include <string>

#include "tests/launcher/machine/agent_machine_fixture.h"
#include "tests/testing/text_proto.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Verdict;
using rendezvous::WorkerFailure;
using ::testing::HasSubstr;
using State = AgentMachine::State;

TEST_F(AgentMachineTest, OnFinish_AfterAllWorkersSucceeded_ExitsWithZero) {
  EXPECT_EQ(Connect(), "join 1 idle");
  EXPECT_EQ(Welcome(), "");
  EXPECT_EQ(Say(rendezvous::NewAssign(Round(1))), "spawn 1");
  EXPECT_EQ(machine_->NextDeadline(), SteadyTime::InfiniteFuture()) << "a running job must not wake up";
  EXPECT_EQ(End({{0, std::nullopt}}), "");
  EXPECT_EQ(End({{1, std::nullopt}}), "sweep, succeeded 1");
  EXPECT_EQ(Say(rendezvous::NewFinish(TextProto<Verdict>("succeeded: true"))), "sweep, exit 0");
  EXPECT_EQ(machine_->state(), State::kDone);
}

TEST_F(AgentMachineTest, OnWorkersEnded_OneFailed_ReportsItAtOnceAndStopsTheOther) {
  Run();
  EXPECT_EQ(End({{0, Failure(0)}}), "failed 1 rank 0, signal 15");
  EXPECT_EQ(Say(rendezvous::NewStopRound(1, "rank 0 failed")), "");
  EXPECT_EQ(End({{1, Failure(1)}}), "sweep, store, ready 1") << "what we killed ourselves is no failure";
  EXPECT_EQ(Say(rendezvous::NewAssign(Round(2))), "spawn 2");
}

TEST_F(AgentMachineTest, OnWorkersEnded_AllFailedAtOnce_TheCauseIsReportedTheOthersAreSiblings) {
  Run();
  WorkerFailure lost_peer = Failure(0);
  lost_peer.set_signal(SIGPIPE);
  EXPECT_EQ(End({{0, lost_peer}, {1, Failure(1)}}), "failed 1 rank 1, sweep, store, ready 1");
  machine_->OnServerMessage(rendezvous::NewFinish(Failed(137)), now_, &effects_);
  const auto& exit = std::get<effect::Exit>(effects_.back());
  EXPECT_EQ(exit.code, 137);
  ASSERT_EQ(exit.siblings.size(), 1u);
  EXPECT_EQ(exit.siblings[0].rank(), 0);
}

TEST_F(AgentMachineTest, OnStopRound_WorkersIgnoreSigterm_AreKilledAfterTheGraceAndAbandonedAfterAnother) {
  Run();
  EXPECT_EQ(Say(rendezvous::NewStopRound(1, "node b joined")), "signal 15");
  EXPECT_EQ(machine_->NextDeadline() - now_, absl::Seconds(30));
  EXPECT_EQ(Due(), "kill");
  EXPECT_EQ(Due(), "sweep, store, ready 1") << "a worker that hangs in the kernel must not hang the job";
}

// The server receives the port at which the store listens.
TEST_F(AgentMachineTest, OnStoreOpened_ItsPortIsInJoinAndReady) {
  machine_->OnConnected("", now_, &effects_);
  EXPECT_EQ(Sent<rendezvous::Join>(effects_)->store_port(), 1);
  Run();
  store_opens_ = false;
  EXPECT_EQ(EndBadly(), "failed 1 rank 0, sweep, store") << "not ready before the store listens";
  EXPECT_EQ(machine_->state(), State::kStopping);
  machine_->OnStoreOpened({4711, "its secret"}, now_, &effects_);
  EXPECT_EQ(*Sent<rendezvous::Ready>(effects_), rendezvous::NewReady(1, 4711, "its secret"));
  EXPECT_EQ(machine_->state(), State::kIdle);
}

TEST_F(AgentMachineTest, OnSignal_WhileTheStoreIsBeingOpened_Exits) {
  Run();
  store_opens_ = false;
  EndBadly();
  EXPECT_EQ(Signal(SIGTERM), "leave, sweep, exit 143");
}

TEST_F(AgentMachineTest, OnConnected_WhileTheStoreIsBeingOpened_ReadyFollows) {
  Run();
  Lose();
  Welcome();
  store_opens_ = false;
  EndBadly();
  EXPECT_EQ(Connect(), "join 2 stopping");
  EXPECT_EQ(Welcome(), "failed 1 rank 0");
  machine_->OnStoreOpened({2}, now_, &effects_);
  EXPECT_EQ(Take(), "ready 1");
}

TEST_F(AgentMachineTest, OnStopRound_AfterSuccess_GoesIdleAtOnce) {
  Run();
  End({{0, std::nullopt}, {1, std::nullopt}});
  EXPECT_EQ(Say(rendezvous::NewStopRound(1, "rank 3 failed")), "sweep, store, ready 1");
}

TEST_F(AgentMachineTest, OnStopRound_OfAnOldRoundOrWithoutOne_IsIgnored) {
  Connect();
  EXPECT_EQ(Say(rendezvous::NewStopRound(1, "")), "");
  Welcome();
  EXPECT_EQ(Say(rendezvous::NewAssign(Round(5))), "spawn 5");
  EXPECT_EQ(Say(rendezvous::NewStopRound(4, "")), "");
  EXPECT_EQ(machine_->state(), State::kRunning);
}

TEST_F(AgentMachineTest, OnAssign_OfTheSameOrAnOlderRound_IsIgnored) {
  Run(5);
  EXPECT_EQ(Say(rendezvous::NewAssign(Round(6))), "") << "workers run: only a StopRound may end them";
  Say(rendezvous::NewStopRound(5, ""));
  EndBadly();
  EXPECT_EQ(Say(rendezvous::NewAssign(Round(5))), "");
  EXPECT_EQ(Say(rendezvous::NewAssign(Round(6))), "spawn 6");
}

TEST_F(AgentMachineTest, OnSpawnFailed_SomeStarted_StopsThemAndReports) {
  Run();
  WorkerFailure missing = Failure(1);
  missing.set_restartable(false);
  machine_->OnSpawnFailed({1}, missing, now_, &effects_);
  EXPECT_EQ(Take(), "failed 1 rank 1, signal 15");
  EXPECT_EQ(Say(rendezvous::NewFinish(Failed(127))), "");
  EXPECT_EQ(End({{0, Failure(0)}}), "sweep, exit 127");
}

TEST_F(AgentMachineTest, OnDisconnected_Running_WorkersContinueAndTheNodeRejoins) {
  Run();
  EXPECT_EQ(Lose(), "");
  EXPECT_THAT(printed_, HasSubstr("workers run on"));
  EXPECT_EQ(Connect(), "join 2 running");
  EXPECT_EQ(Welcome(), "");
  EXPECT_EQ(machine_->NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST_F(AgentMachineTest, OnDisconnected_ServerStaysAway_StopsTheWorkers) {
  Run();
  Lose();
  EXPECT_EQ(machine_->NextDeadline() - now_, absl::Minutes(30));
  EXPECT_EQ(Due(), "signal 15");
  EXPECT_THAT(printed_,
              HasSubstr("no rendezvous server at 10.0.0.1:29400 for 30m; here (10.0.0.2): connection refused"));
  EXPECT_EQ(EndBadly(), "sweep, exit 1");
}

TEST_F(AgentMachineTest, OnWelcome_UnsentFailure_IsReportedBeforeReady) {
  Run();
  Lose();
  EXPECT_EQ(End({{0, Failure(0)}, {1, std::nullopt}}), "sweep, store") << "nobody to tell";
  EXPECT_EQ(Connect(), "join 2 stopping");
  EXPECT_EQ(Welcome(), "failed 1 rank 0, ready 1");
}

TEST_F(AgentMachineTest, OnWelcome_WorkersSucceededAfterTheJoin_IsReported) {
  Run();
  Lose();
  EXPECT_EQ(Connect(), "join 2 running");
  EXPECT_EQ(End({{0, std::nullopt}, {1, std::nullopt}}), "sweep");
  EXPECT_EQ(Welcome(), "succeeded 1");
  Lose();
  EXPECT_EQ(Connect(), "join 3 succeeded");
}

TEST_F(AgentMachineTest, OnWelcome_WorkersStoppedAfterTheJoin_IsReported) {
  Run();
  EXPECT_EQ(Say(rendezvous::NewStopRound(1, "node b was lost")), "signal 15");
  Lose();
  EXPECT_EQ(Connect(), "join 2 stopping");
  EXPECT_EQ(EndBadly(), "sweep, store");
  EXPECT_EQ(Welcome(), "ready 1");
}

TEST_F(AgentMachineTest, OnDisconnected_BeforeTheFirstWelcome_WaitsForTheJoinTimeout) {
  EXPECT_EQ(Lose(), "");
  EXPECT_EQ(Due(), "");
  EXPECT_THAT(printed_, HasSubstr("waiting for the rendezvous server at 10.0.0.1:29400; here (10.0.0.2): connection"));
  std::string last;
  for (int i = 0; i < 20 && machine_->state() != State::kDone; ++i) last = Due();
  EXPECT_EQ(last, "sweep, exit 1");
  EXPECT_EQ(now_, SteadyTime::FromStart(absl::Seconds(1000) + absl::Minutes(10)));
}

TEST_F(AgentMachineTest, OnRejected_ExitsWithUsage) {
  Connect();
  EXPECT_EQ(Say(rendezvous::NewRejected("--nnodes is 2 on a but 3 on b")), "sweep, exit 2");
  EXPECT_EQ(printed_, "--nnodes is 2 on a but 3 on b\n");
}

TEST_F(AgentMachineTest, OnDisconnected_Permanent_ExitsWithOne) { EXPECT_EQ(Lose(true), "sweep, exit 1"); }

TEST_F(AgentMachineTest, OnDeadline_Heartbeats_AreSentAndASilentServerIsLeft) {
  const SteadyTime start = now_;
  const auto until_reset = [this] {
    std::string due;
    while (due.empty() || due == "heartbeat") due = Due();
    EXPECT_EQ(due, "reset");
    return now_;
  };
  Connect();
  EXPECT_EQ(until_reset() - start, absl::Seconds(15)) << "it never answered";
  Connect();
  Say(WelcomeEvery(absl::Milliseconds(500)));
  EXPECT_EQ(Due(), "heartbeat");
  Say(rendezvous::HeartbeatAck{});
  EXPECT_EQ(until_reset() - start, absl::Seconds(30.5)) << "15 s after the last answer";
}

TEST_F(AgentMachineTest, EndedRound_ItsStore_IsNotReported) {
  Run();
  machine_->OnRegistering(now_, &effects_);
  EXPECT_EQ(machine_->NextDeadline() - now_, absl::Seconds(5));
  EndBadly();
  EXPECT_GT(machine_->NextDeadline() - now_, absl::Seconds(5));
}

TEST_F(AgentMachineTest, OnServing_Waiting_IsInTheMessages) {
  machine_->OnServing("this node serves at 127.0.0.1:29400");
  Join();
  auto waiting = TextProto<rendezvous::Waiting>("nodes_joined: 1 min_nodes: 2 max_nodes: 2 hosts: 'here'");
  *waiting.mutable_remaining() = FromDuration(absl::InfiniteDuration());
  Say(waiting);
  Due();
  EXPECT_EQ(printed_, "waiting for 1 more node; 1 of 2 joined (joined: here); this node serves at 127.0.0.1:29400\n");
  Say(rendezvous::NewFinish(Failed(1)));
  EXPECT_EQ(printed_, "this node serves at 127.0.0.1:29400\n");
}

TEST_F(AgentMachineTest, OnFatal_Running_LeavesStopsAndExitsWithOne) {
  Run();
  machine_->OnFatal("no port for the store", now_, &effects_);
  EXPECT_EQ(*Sent<rendezvous::Leave>(effects_), rendezvous::NewLeave("no port for the store", true, 0));
  EXPECT_EQ(Take(), "leave, signal 15");
  EXPECT_EQ(EndBadly(), "sweep, exit 1");
}

TEST_F(AgentMachineTest, Stop_WithoutGrace_KillsAtOnce) {
  AgentSettings settings = Settings();
  settings.shutdown_timeout = absl::ZeroDuration();
  Start(settings);
  Run();
  EXPECT_EQ(Say(rendezvous::NewStopRound(1, "")), "kill");
}

TEST_F(AgentMachineTest, ExpectedHosts_Missing_AreNamed) {
  AgentSettings settings = Settings();
  settings.expected_hosts = {"node1", "node2", "node3"};
  Start(settings);
  Join();
  const auto waiting = TextProto<rendezvous::Waiting>(
      "nodes_joined: 2 min_nodes: 3 max_nodes: 3 hosts: ['node1', 'node2'] remaining { seconds: 60 }");
  machine_->OnServerMessage(waiting, now_, &effects_);
  ASSERT_EQ(effects_.size(), 1u);
  EXPECT_EQ(std::get<effect::ShowStatus>(effects_[0]).text,
            "waiting for node3; 2 of 3 joined (joined: node1, node2); timing out in 1m0s");
  Take();
  EXPECT_EQ(Say(rendezvous::NewFinish(rendezvous::NewVerdict(false, "only 2 of 3 nodes joined", std::nullopt, 1))),
            "sweep, exit 1");
  EXPECT_EQ(printed_, "timed out waiting for node3\n");
}

using Step = StopSequence::Step;
constexpr SteadyTime kNoLimit = SteadyTime::InfiniteFuture();

TEST(StopSequence, Take_AfterTheGrace_KillsThenAbandons) {
  SteadyTime now;
  StopSequence stop;
  EXPECT_EQ(stop.NextDeadline(now), kNoLimit) << "nothing is stopping";
  stop.Start(absl::Seconds(5), now);
  EXPECT_EQ(stop.Take(kNoLimit, now), Step::kNone);
  now = stop.NextDeadline(kNoLimit);
  EXPECT_EQ(stop.Take(kNoLimit, now), Step::kKill);
  EXPECT_EQ(stop.NextDeadline(kNoLimit) - now, StopSequence::kAbandonAfter);
  now = stop.NextDeadline(kNoLimit);
  EXPECT_EQ(stop.Take(kNoLimit, now), Step::kAbandon);
  EXPECT_EQ(stop.NextDeadline(kNoLimit), kNoLimit);
}

TEST(StopSequence, LimitAndHurry_ShortenTheGrace) {
  const SteadyTime now;
  StopSequence stop;
  stop.Start(absl::Seconds(5), now);
  EXPECT_EQ(stop.KillAt(now + absl::Seconds(1)), now + absl::Seconds(1));
  EXPECT_EQ(stop.KillAt(kNoLimit), now + absl::Seconds(5));
  stop.Hurry(now);
  EXPECT_EQ(stop.Take(kNoLimit, now), Step::kKill);
  stop.Hurry(now);
  EXPECT_EQ(stop.Take(kNoLimit, now), Step::kAbandon);
}

TEST(StopSequence, OnKilled_OthersKeepTheirGrace) {
  const SteadyTime now;
  StopSequence stop;
  stop.Start(absl::Seconds(5), now);
  stop.OnKilled(now);
  EXPECT_EQ(stop.NextDeadline(kNoLimit), now + absl::Seconds(5));
  stop.Clear();
  stop.OnKilled(now);
  EXPECT_EQ(stop.NextDeadline(kNoLimit), now + StopSequence::kAbandonAfter);
}

}  // namespace

}  // namespace ddprun::launcher
