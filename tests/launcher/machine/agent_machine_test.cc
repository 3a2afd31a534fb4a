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
  EXPECT_EQ(Due(), "stuck, failed 1 rank 0 stuck, sweep, store, ready 1") << "the job must not hang, too";
  EXPECT_THAT(printed_, HasSubstr("rank 0 on here (local rank 0) is stuck in the kernel: state D"));
}

class StuckWorkerTest : public AgentMachineTest {
 protected:
  // Both workers survive SIGKILL.
  void Abandon() {
    Run();
    Say(rendezvous::NewStopRound(1, "node b joined"));
    Due();
    Due();
    ASSERT_EQ(machine_->state(), State::kIdle);
  }
};

TEST_F(StuckWorkerTest, OnAssign_BeforeTheyHaveEnded_WaitsForThem) {
  Abandon();
  EXPECT_EQ(Say(rendezvous::NewAssign(Round(2))), "") << "a new worker would use the same device";
  EXPECT_EQ(End({{0, Failure(0)}}), "");
  EXPECT_EQ(End({{1, Failure(1)}}), "spawn 2");
  EXPECT_THAT(printed_, HasSubstr("the workers that were stuck in the kernel have ended"));
  EXPECT_EQ(machine_->NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST_F(StuckWorkerTest, OnDeadline_AfterTheCooldown_LeavesTheJob) {
  Abandon();
  const SteadyTime abandoned = now_;
  Say(rendezvous::NewAssign(Round(2)));
  std::string words;
  while (words.empty()) words = Due();
  EXPECT_EQ(words, "leave, sweep, exit 1");
  EXPECT_EQ(now_ - abandoned, absl::Minutes(1)) << "node_cooldown";
  EXPECT_THAT(printed_, HasSubstr("this node leaves the job"));
}

TEST_F(StuckWorkerTest, OnWelcome_ServerReachedAgain_ReceivesTheReportAgain) {
  Abandon();
  Lose();
  EXPECT_EQ(Connect(), "join 2 idle");
  EXPECT_EQ(Welcome(), "failed 1 rank 0 stuck");
}

TEST_F(StuckWorkerTest, OnStuck_NoProcessYet_IsForgotten) {
  have_processes_ = false;
  Abandon();
  EXPECT_EQ(Say(rendezvous::NewAssign(Round(2))), "spawn 2");
}

TEST_F(StuckWorkerTest, OnStuck_LauncherStops_Exits) {
  Run();
  Signal(SIGTERM);
  EXPECT_EQ(Due(), "kill");
  EXPECT_EQ(Due(), "stuck, sweep, exit 143");
}

TEST_F(StuckWorkerTest, OnUninterruptible_Running_IsAFailureOfTheRound) {
  Run();
  machine_->OnUninterruptible(Stuck(1), now_, &effects_);
  EXPECT_EQ(Take(), "failed 1 rank 1 stuck, signal 15");
  machine_->OnUninterruptible(Stuck(0), now_, &effects_);
  EXPECT_EQ(Take(), "") << "the round is over";
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
  missing.set_signal(0);
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

TEST_F(AgentMachineTest, OnDisconnected_ServerStaysAwayAfterAFailure_FailureIsTheVerdict) {
  Run();
  Lose();
  EndBadly();
  while (machine_->state() != State::kDone) machine_->OnDeadline(machine_->NextDeadline(), &effects_);
  const auto& exit = std::get<effect::Exit>(effects_.back());
  EXPECT_EQ(exit.code, 137);
  ASSERT_TRUE(exit.verdict);
  EXPECT_EQ(exit.verdict->first_cause().rank(), 0);
  EXPECT_THAT(exit.verdict->reason(),
              HasSubstr("rank 0 on here (local rank 0) was killed by SIGKILL; the rendezvous "));
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

constexpr auto kHung = rendezvous::Hang::KIND_HUNG;
constexpr auto kContinued = rendezvous::Hang::KIND_CONTINUED;

// Protocol 6.2: a report of the current round is shown once, until it is over.
TEST_F(AgentMachineTest, OnServerMessage_Hang_IsShownOnce) {
  Run(5);
  const auto hang = [](uint64_t round, std::string text, bool continued = false) {
    return rendezvous::NewHang(continued ? kContinued : kHung, round, std::move(text), {3});
  };
  EXPECT_EQ(Say(hang(4, "an older round")), "");
  EXPECT_EQ(Say(hang(5, "nothing to continue", true)), "");
  EXPECT_EQ(Say(hang(5, "rank 3 hangs")), "hang: rank 3 hangs");
  EXPECT_EQ(Say(hang(5, "rank 3 hangs")), "") << "repeated after a reconnection";
  EXPECT_EQ(Say(hang(5, "rank 3 still hangs")), "hang: rank 3 still hangs");
  EXPECT_EQ(Say(hang(5, "rank 3 continued", true)), "hang: rank 3 continued");
  EXPECT_EQ(Say(hang(5, "rank 3 continued", true)), "");
  EXPECT_EQ(machine_->state(), State::kRunning);
}

TEST_F(AgentMachineTest, OnServerMessage_Straggler_IsShownOnceAndEndsNoHang) {
  Run(5);
  const auto straggler = [](int32_t rank) {
    return rendezvous::NewHang(rendezvous::Hang::KIND_STRAGGLER, 5, absl::StrCat("rank ", rank, " is late"), {rank});
  };
  EXPECT_EQ(Say(rendezvous::NewHang(kHung, 5, "rank 3 hangs", {3})), "hang: rank 3 hangs");
  EXPECT_FALSE(machine_->IsStraggler(1));
  EXPECT_EQ(Say(straggler(1)), "hang: rank 1 is late");
  EXPECT_EQ(Say(straggler(1)), "") << "repeated after a reconnection";
  EXPECT_TRUE(machine_->IsStraggler(1));
  EXPECT_EQ(Say(straggler(2)), "hang: rank 2 is late");
  EXPECT_FALSE(machine_->IsStraggler(1));
  EXPECT_EQ(Say(rendezvous::NewHang(kContinued, 5, "rank 3 continued", {3})), "hang: rank 3 continued");
}

TEST_F(AgentMachineTest, OnHang_RoundLastsAndServerIsThere_IsSent) {
  const auto report = [&](bool continued = false) {
    machine_->OnHang(rendezvous::NewHang(continued ? kContinued : kHung, 0, "rank 0 hangs\nstack", {0}), now_,
                     &effects_);
    return Take();
  };
  Connect();
  EXPECT_EQ(report(), "") << "no round";
  Welcome();
  Say(rendezvous::NewAssign(Round(1)));
  machine_->OnHang(rendezvous::NewHang(kHung, 0, "rank 0 hangs\nstack", {0}), now_, &effects_);
  EXPECT_EQ(*Sent<rendezvous::Hang>(effects_), rendezvous::NewHang(kHung, 1, "rank 0 hangs\nstack", {0}));
  EXPECT_EQ(Take(), "hang: rank 0 hangs\nstack, hang 1");
  machine_->OnHang(rendezvous::NewHang(rendezvous::Hang::KIND_REPLACE, 0, "rank 0 is replaced", {0, 7}), now_,
                   &effects_);
  EXPECT_EQ(Take(), "replace 0: rank 0 is replaced / stack, hang 1");
  EXPECT_EQ(report(true), "hang: rank 0 hangs\nstack, hang 1 over");
  End({{0, std::nullopt}, {1, std::nullopt}});
  EXPECT_EQ(report(), "hang: rank 0 hangs\nstack, hang 1") << "workers of other nodes run";
  Lose();
  EXPECT_EQ(report(), "") << "known already";
}

TEST_F(AgentMachineTest, OnServerMessage_Inspect_StacksOfOwnRunningWorkersAreCollected) {
  const auto inspect = [](uint64_t round) {
    rendezvous::Inspect message;
    message.set_id(3);
    message.set_round(round);
    for (const int32_t rank : {1, 7}) message.add_ranks(rank);
    return message;
  };
  Run(5);
  EXPECT_EQ(Say(inspect(5)), "collect 1 as 1");
  EXPECT_EQ(Say(inspect(4)), "collect  as ") << "answered without ranks";
  machine_->OnStacks(rendezvous::NewInspection(3, 5, true), now_, &effects_);
  EXPECT_EQ(Take(), "stacks 3");
  Say(rendezvous::NewStopRound(5, "rank 3 failed"));
  EXPECT_EQ(Say(inspect(5)), "collect  as ") << "stopping";
  rendezvous::Inspect output = inspect(5);
  output.set_what(rendezvous::Inspect::WHAT_OUTPUT);
  EXPECT_EQ(Say(output), "collect 1 as 1") << "output outlives the workers";
  Lose();
  machine_->OnStacks(rendezvous::NewInspection(3, 5, true), now_, &effects_);
  EXPECT_EQ(Take(), "");
}

// The failure summary has a hang that was not over.
TEST_F(AgentMachineTest, OnFinish_AfterAHang_ExitNamesIt) {
  const auto exit_after = [&](const std::vector<rendezvous::Hang>& hangs, uint64_t last_round = 1) {
    Start(Settings());
    Run();
    for (const rendezvous::Hang& hang : hangs) Say(hang);
    Say(rendezvous::NewStopRound(1, "rank 3 failed"));
    EndBadly();
    if (last_round > 1) {
      Say(rendezvous::NewAssign(Round(last_round)));
      EndBadly();
    }
    machine_->OnServerMessage(rendezvous::NewFinish(Failed(1)), now_, &effects_);
    const effect::Exit exit = std::get<effect::Exit>(effects_.back());
    Take();
    return exit.hang;
  };
  const rendezvous::Hang hang = rendezvous::NewHang(kHung, 1, "rank 3 hangs\nstack");
  EXPECT_EQ(exit_after({hang}), "rank 3 hangs");
  EXPECT_EQ(exit_after({hang}, 2), "") << "of an older round";
  EXPECT_EQ(exit_after({hang, rendezvous::NewHang(kContinued, 1, "over")}), "");
  machine_->OnHang(rendezvous::NewHang(kHung, 0, "too late", {0}), now_, &effects_);
  EXPECT_EQ(Take(), "");
}

}  // namespace

}  // namespace ddprun::launcher
