#include "launcher/core/agent_machine.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Assignment;
using rendezvous::Join;
using rendezvous::Verdict;
using rendezvous::WorkerFailure;
using State = AgentMachine::State;

// One word or two per effect, so that a test reads as the list of what the launcher does. Lines for people are left
// out; tests that mean them look at them themselves.
std::string Render(const AgentMachine::Effects& effects) {
  std::vector<std::string> words;
  for (const AgentEffect& e : effects) {
    if (const auto* send = std::get_if<effect::Send>(&e)) {
      if (const auto* m = std::get_if<Join>(&send->message)) {
        static const char* const kPhases[] = {"idle", "running", "succeeded", "stopping"};
        words.push_back(absl::StrCat("join ", m->incarnation, " ", kPhases[static_cast<int>(m->phase)]));
      } else if (std::holds_alternative<rendezvous::Heartbeat>(send->message)) {
        words.push_back("heartbeat");
      } else if (const auto* m = std::get_if<rendezvous::WorkerFailed>(&send->message)) {
        words.push_back(absl::StrCat("failed ", m->round, " rank ", m->failure.rank));
      } else if (const auto* m = std::get_if<rendezvous::GroupSucceeded>(&send->message)) {
        words.push_back(absl::StrCat("succeeded ", m->round));
      } else if (const auto* m = std::get_if<rendezvous::Ready>(&send->message)) {
        words.push_back(absl::StrCat("ready ", m->left_round));
      } else {
        words.push_back("leave");
      }
    } else if (std::holds_alternative<effect::ResetConnection>(e)) {
      words.push_back("reset");
    } else if (std::holds_alternative<effect::OpenStore>(e)) {
      words.push_back("store");
    } else if (const auto* spawn = std::get_if<effect::SpawnWorkers>(&e)) {
      words.push_back(absl::StrCat("spawn ", spawn->assignment.round));
    } else if (const auto* signal = std::get_if<effect::SignalWorkers>(&e)) {
      if (signal->signal != SIGCONT) words.push_back(absl::StrCat("signal ", signal->signal));
    } else if (std::holds_alternative<effect::KillWorkers>(e)) {
      words.push_back("kill");
    } else if (std::holds_alternative<effect::SweepOrphans>(e)) {
      words.push_back("sweep");
    } else if (std::holds_alternative<effect::ReportMissingRanks>(e)) {
      words.push_back("missing");
    } else if (const auto* exit = std::get_if<effect::Exit>(&e)) {
      words.push_back(absl::StrCat("exit ", exit->code));
    }
  }
  return absl::StrJoin(words, ", ");
}

std::string Printed(const AgentMachine::Effects& effects) {
  std::string text;
  for (const AgentEffect& e : effects) {
    if (const auto* print = std::get_if<effect::Print>(&e)) absl::StrAppend(&text, print->text, "\n");
  }
  return text;
}

class AgentMachineTest : public ::testing::Test {
 protected:
  AgentMachineTest() : AgentMachineTest(Settings()) {}
  explicit AgentMachineTest(AgentSettings settings) : machine_(std::move(settings), now_) {
    machine_.Start(now_, &effects_);
    EXPECT_EQ(Take(), "store");
  }

  static AgentSettings Settings() {
    AgentSettings settings;
    settings.join.job_id = "job";
    settings.join.node_id = "node";
    settings.join.host = "here";
    settings.join.address = "10.0.0.2";
    settings.join.slots = 2;
    settings.join.settings.min_nodes = settings.join.settings.max_nodes = 2;
    settings.server = "10.0.0.1:29400";
    settings.warning_signals = {SIGUSR1};
    return settings;
  }

  static Assignment Round(uint64_t round) {
    Assignment assignment;
    assignment.round = round;
    assignment.group_world_size = 2;
    assignment.world_size = 4;
    return assignment;
  }

  static WorkerFailure Failure(int rank) {
    WorkerFailure failure;
    failure.host = "here";
    failure.rank = failure.local_rank = rank;
    failure.signal = SIGKILL;
    failure.message = "killed by SIGKILL";
    return failure;
  }

  static Verdict Failed(int code) {
    Verdict verdict;
    verdict.exit_code = code;
    verdict.first_cause = Failure(0);
    return verdict;
  }

  // As the shell, opens the store as soon as it is asked to.
  std::string Take() {
    for (size_t i = 0; i < effects_.size(); ++i) {
      if (std::holds_alternative<effect::OpenStore>(effects_[i])) machine_.OnStoreOpened({++port_}, now_, &effects_);
    }
    const std::string text = Render(effects_);
    printed_ = Printed(effects_);
    effects_.clear();
    return text;
  }
  // The Leave among the effects, if there is one.
  std::optional<rendezvous::Leave> LeaveSaid() const {
    for (const AgentEffect& e : effects_) {
      const auto* send = std::get_if<effect::Send>(&e);
      if (send == nullptr) continue;
      if (const auto* leave = std::get_if<rendezvous::Leave>(&send->message)) return *leave;
    }
    return std::nullopt;
  }
  std::string Connect() {
    machine_.OnConnected(now_, &effects_);
    return Take();
  }
  std::string Say(rendezvous::ServerMessage message) {
    machine_.OnServerMessage(message, now_, &effects_);
    return Take();
  }
  std::string End(std::vector<WorkerEnd> ends) {
    machine_.OnWorkersEnded(ends, now_, &effects_);
    return Take();
  }
  std::string Signal(int number, bool from_batch_system = false) {
    machine_.OnSignal({number, absl::StrCat("signal ", number), from_batch_system, absl::Seconds(61)}, now_, &effects_);
    return Take();
  }
  std::string Lose(bool permanent = false) {
    machine_.OnDisconnected("connection refused", permanent, now_, now_, &effects_);
    return Take();
  }
  // Lets the time pass to the next deadline and acts on it.
  std::string Due() {
    now_ = machine_.NextDeadline();
    machine_.OnDeadline(now_, &effects_);
    return Take();
  }
  void Run(uint64_t round = 1) {
    Connect();
    Say(rendezvous::Welcome{absl::InfiniteDuration()});
    ASSERT_EQ(Say(rendezvous::Assign{Round(round)}), absl::StrCat("spawn ", round));
    ASSERT_EQ(machine_.state(), State::kRunning);
  }

  SteadyTime now_ = SteadyTime::FromStart(absl::Seconds(1000));
  AgentMachine machine_;
  AgentMachine::Effects effects_;
  std::string printed_;
  int port_ = 0;
};

TEST_F(AgentMachineTest, OnFinish_AfterAllWorkersSucceeded_ExitsWithZero) {
  EXPECT_EQ(Connect(), "join 1 idle");
  EXPECT_EQ(Say(rendezvous::Welcome{absl::InfiniteDuration()}), "");
  EXPECT_EQ(Say(rendezvous::Assign{Round(1)}), "spawn 1");
  EXPECT_EQ(machine_.NextDeadline(), SteadyTime::InfiniteFuture()) << "a running job must not wake up";
  EXPECT_EQ(End({{0, std::nullopt}}), "");
  EXPECT_EQ(End({{1, std::nullopt}}), "sweep, succeeded 1");
  Verdict good;
  good.succeeded = true;
  EXPECT_EQ(Say(rendezvous::Finish{good}), "sweep, exit 0");
  EXPECT_EQ(machine_.state(), State::kDone);
}

TEST_F(AgentMachineTest, OnWorkersEnded_OneFailed_ReportsItAtOnceAndStopsTheOther) {
  Run();
  EXPECT_EQ(End({{0, Failure(0)}}), "failed 1 rank 0, signal 15");
  EXPECT_EQ(Say(rendezvous::StopRound{1, "rank 0 failed", std::nullopt}), "");
  EXPECT_EQ(End({{1, Failure(1)}}), "sweep, store, ready 1") << "what we killed ourselves is no failure";
  EXPECT_EQ(Say(rendezvous::Assign{Round(2)}), "spawn 2");
}

TEST_F(AgentMachineTest, OnWorkersEnded_AllFailedAtOnce_TheCauseIsReportedTheOthersAreSiblings) {
  Run();
  WorkerFailure lost_peer = Failure(0);
  lost_peer.signal = SIGPIPE;
  EXPECT_EQ(End({{0, lost_peer}, {1, Failure(1)}}), "failed 1 rank 1, sweep, store, ready 1");
  machine_.OnServerMessage(rendezvous::Finish{Failed(137)}, now_, &effects_);
  const auto& exit = std::get<effect::Exit>(effects_.back());
  EXPECT_EQ(exit.code, 137);
  ASSERT_EQ(exit.siblings.size(), 1u);
  EXPECT_EQ(exit.siblings[0].rank, 0);
}

TEST_F(AgentMachineTest, OnStopRound_WorkersIgnoreSigterm_AreKilledAfterTheGraceAndAbandonedAfterAnother) {
  Run();
  EXPECT_EQ(Say(rendezvous::StopRound{1, "node b joined", std::nullopt}), "signal 15");
  EXPECT_EQ(machine_.NextDeadline() - now_, absl::Seconds(30));
  EXPECT_EQ(Due(), "kill");
  EXPECT_EQ(Due(), "sweep, store, ready 1") << "a worker that hangs in the kernel must not hang the job";
}

TEST_F(AgentMachineTest, OnStopRound_EffectsNameTheRanksThatAreAlive) {
  Run();
  End({{0, std::nullopt}});
  machine_.OnServerMessage(rendezvous::StopRound{1, "node b joined", std::nullopt}, now_, &effects_);
  ASSERT_EQ(effects_.size(), 4u);
  EXPECT_EQ(std::get<effect::TellStop>(effects_[1]).ranks, LocalRanks({1}));
  EXPECT_EQ(std::get<effect::SignalWorkers>(effects_[2]).ranks, LocalRanks({1}));
  Take();
  now_ = machine_.NextDeadline();
  machine_.OnDeadline(now_, &effects_);
  EXPECT_EQ(std::get<effect::KillWorkers>(effects_.at(0)).ranks, LocalRanks({1}));
}

// What is told to the server is the port of the store that listens.
TEST_F(AgentMachineTest, OnStoreOpened_ItsPortIsInJoinAndReady) {
  machine_.OnConnected(now_, &effects_);
  EXPECT_EQ(std::get<Join>(std::get<effect::Send>(effects_.at(0)).message).store_port, 1);
  Take();
  Say(rendezvous::Welcome{absl::InfiniteDuration()});
  Say(rendezvous::Assign{Round(1)});
  machine_.OnWorkersEnded({{0, Failure(0)}, {1, Failure(1)}}, now_, &effects_);
  EXPECT_EQ(Render(effects_), "failed 1 rank 0, sweep, store") << "not ready before the store listens";
  effects_.clear();
  EXPECT_EQ(machine_.state(), State::kStopping);
  machine_.OnStoreOpened({4711, "its secret"}, now_, &effects_);
  ASSERT_EQ(effects_.size(), 1u);
  EXPECT_EQ(std::get<rendezvous::Ready>(std::get<effect::Send>(effects_[0]).message),
            (rendezvous::Ready{1, 4711, "its secret"}));
  EXPECT_EQ(machine_.state(), State::kIdle);
}

TEST_F(AgentMachineTest, OnSignal_WhileTheStoreIsBeingOpened_Exits) {
  Run();
  machine_.OnWorkersEnded({{0, Failure(0)}, {1, Failure(1)}}, now_, &effects_);
  effects_.clear();
  EXPECT_EQ(Signal(SIGTERM), "leave, sweep, exit 143");
}

TEST_F(AgentMachineTest, OnConnected_WhileTheStoreIsBeingOpened_ReadyFollows) {
  Run();
  Lose();
  machine_.OnServerMessage(rendezvous::Welcome{absl::InfiniteDuration()}, now_, &effects_);
  machine_.OnWorkersEnded({{0, Failure(0)}, {1, Failure(1)}}, now_, &effects_);
  effects_.clear();
  EXPECT_EQ(Connect(), "join 2 stopping");
  EXPECT_EQ(Say(rendezvous::Welcome{absl::InfiniteDuration()}), "failed 1 rank 0");
  machine_.OnStoreOpened({2}, now_, &effects_);
  EXPECT_EQ(Take(), "ready 1");
}

TEST_F(AgentMachineTest, OnStopRound_AfterSuccess_GoesIdleAtOnce) {
  Run();
  End({{0, std::nullopt}, {1, std::nullopt}});
  EXPECT_EQ(Say(rendezvous::StopRound{1, "rank 3 failed", std::nullopt}), "sweep, store, ready 1");
}

TEST_F(AgentMachineTest, OnStopRound_OfAnOldRoundOrWithoutOne_IsIgnored) {
  Connect();
  EXPECT_EQ(Say(rendezvous::StopRound{1, "", std::nullopt}), "");
  Say(rendezvous::Welcome{absl::InfiniteDuration()});
  EXPECT_EQ(Say(rendezvous::Assign{Round(5)}), "spawn 5");
  EXPECT_EQ(Say(rendezvous::StopRound{4, "", std::nullopt}), "");
  EXPECT_EQ(machine_.state(), State::kRunning);
}

TEST_F(AgentMachineTest, OnAssign_OfTheSameOrAnOlderRound_IsIgnored) {
  Run(5);
  EXPECT_EQ(Say(rendezvous::Assign{Round(6)}), "") << "workers run: only a StopRound may end them";
  Say(rendezvous::StopRound{5, "", std::nullopt});
  End({{0, Failure(0)}, {1, Failure(1)}});
  EXPECT_EQ(Say(rendezvous::Assign{Round(5)}), "");
  EXPECT_EQ(Say(rendezvous::Assign{Round(6)}), "spawn 6");
}

TEST_F(AgentMachineTest, OnSpawnFailed_SomeStarted_StopsThemAndReports) {
  Run();
  WorkerFailure missing = Failure(1);
  missing.restartable = false;
  machine_.OnSpawnFailed({1}, missing, now_, &effects_);
  EXPECT_EQ(Take(), "failed 1 rank 1, signal 15");
  EXPECT_EQ(Say(rendezvous::Finish{Failed(127)}), "");
  EXPECT_EQ(End({{0, Failure(0)}}), "sweep, exit 127");
}

TEST_F(AgentMachineTest, OnSignal_Running_LeavesForwardsItAndExitsWithItsCode) {
  Run();
  EXPECT_EQ(Signal(SIGINT), "leave, signal 2");
  EXPECT_EQ(Signal(SIGINT), "kill") << "asked twice: no more patience";
  EXPECT_EQ(End({{0, Failure(0)}, {1, Failure(1)}}), "sweep, exit 130");
}

TEST_F(AgentMachineTest, OnSignal_TellsTheServerWhichOne) {
  Run();
  machine_.OnSignal({SIGINT, "SIGINT from somebody"}, now_, &effects_);
  EXPECT_EQ(LeaveSaid(), (rendezvous::Leave{"received SIGINT", true, SIGINT}));
}

TEST_F(AgentMachineTest, OnFatal_NobodyToldItToStop) {
  Run();
  machine_.OnFatal("no port", now_, &effects_);
  EXPECT_EQ(LeaveSaid(), (rendezvous::Leave{"no port", true, 0}));
}

class ReplacedAgentMachineTest : public AgentMachineTest {
 protected:
  ReplacedAgentMachineTest()
      : AgentMachineTest([] {
          AgentSettings settings = Settings();
          settings.replaced = true;
          return settings;
        }()) {}
};

TEST_F(ReplacedAgentMachineTest, OnSignal_LeavesAsOneThatIsReplaced) {
  Run();
  machine_.OnSignal({SIGTERM, "SIGTERM from somebody"}, now_, &effects_);
  EXPECT_EQ(LeaveSaid(), (rendezvous::Leave{"received SIGTERM", true, 0}));
}

TEST_F(AgentMachineTest, OnSignal_BeforeAnyRound_ExitsAtOnce) { EXPECT_EQ(Signal(SIGTERM), "sweep, exit 143"); }

TEST_F(AgentMachineTest, OnSignal_WhileStoppingForANewRound_ExitsInsteadOfGoingIdle) {
  Run();
  Say(rendezvous::StopRound{1, "", std::nullopt});
  EXPECT_EQ(Signal(SIGTERM), "leave");
  EXPECT_EQ(End({{0, Failure(0)}, {1, Failure(1)}}), "sweep, exit 143");
}

TEST_F(AgentMachineTest, OnSignal_Warning_IsPassedOnAndTheJobGoesOn) {
  EXPECT_EQ(Signal(SIGUSR1), "");
  EXPECT_EQ(printed_, "received signal 10; no workers to pass it on to\n");
  Run();
  EXPECT_EQ(Signal(SIGUSR1), "signal 10");
  EXPECT_EQ(Signal(SIGUSR1, true), "signal 10") << "who sent it is of no matter where no batch system is";
  EXPECT_EQ(machine_.state(), State::kRunning);
  EXPECT_EQ(Signal(SIGTERM), "leave, signal 15");
  EXPECT_EQ(Signal(SIGUSR1), "signal 10") << "a warning is no second request to stop";
}

// Of a batch system that sends its signals to every process.
class BatchAgentMachineTest : public AgentMachineTest {
 protected:
  BatchAgentMachineTest() : AgentMachineTest(BatchSettings()) {}
  static AgentSettings BatchSettings() {
    AgentSettings settings = Settings();
    settings.batch.emplace();
    settings.batch->signals_every_process = true;
    settings.shutdown_timeout = absl::Seconds(27);
    return settings;
  }
  static WorkerEnd Failed(int rank, FailureClass failure_class) {
    WorkerFailure failure = Failure(rank);
    switch (failure_class) {
      case FailureClass::kCrash: failure.signal = SIGSEGV; break;
      case FailureClass::kAskedToStop: failure.signal = SIGTERM; break;
      case FailureClass::kPeerError: failure.signal = SIGPIPE; break;
      default:
        failure.signal = 0;
        failure.exit_code = 1;
        if (failure_class == FailureClass::kOwnError) failure.traceback = "Traceback";
    }
    EXPECT_EQ(Classify({failure, std::nullopt, false}), failure_class);
    return WorkerEnd{rank, failure, std::nullopt};
  }
  static constexpr absl::Duration kSpread = absl::Milliseconds(250);
};

TEST_F(BatchAgentMachineTest, OnSignal_WarningOfTheBatchSystem_IsNotSentTwice) {
  Run();
  EXPECT_EQ(Signal(SIGUSR1, true), "");
  EXPECT_EQ(printed_,
            "received signal 10; the workers have it too; the job's time ends in 1m1s; at its end workers have 27s "
            "from SIGTERM on\n");
  EXPECT_EQ(Signal(SIGUSR1), "signal 10") << "from somebody else";
}

TEST_F(BatchAgentMachineTest, OnSignal_OfTheBatchSystem_IsNotSentTwiceAndTheGraceBegins) {
  Run();
  EXPECT_EQ(Signal(SIGTERM, true), "");
  EXPECT_EQ(printed_, "received signal 15; workers have 27s to save and end\n");
  const SteadyTime signalled = now_;
  EXPECT_EQ(Due(), "leave");
  EXPECT_EQ(now_ - signalled, kSpread);
  EXPECT_EQ(Signal(SIGTERM, true), "") << "its second SIGTERM is not impatience";
  EXPECT_EQ(Due(), "kill");
  EXPECT_EQ(now_ - signalled, absl::Seconds(27));
  EXPECT_EQ(End({{0, Failure(0)}, {1, Failure(1)}}), "sweep, exit 143");
}

TEST_F(BatchAgentMachineTest, OnSignal_OfSomebodyElse_IsPassedOnAtOnce) {
  Run();
  EXPECT_EQ(Signal(SIGTERM), "leave, signal 15");
  EXPECT_EQ(Signal(SIGTERM), "kill");
}

TEST_F(BatchAgentMachineTest, OnSignal_WorkersEndAtOnce_TheNodeStaysUntilTheOthersHaveTheSignalToo) {
  Run();
  EXPECT_EQ(Signal(SIGTERM, true), "");
  EXPECT_EQ(End({{0, Failure(0)}, {1, std::nullopt}}), "");
  EXPECT_EQ(Say(rendezvous::StopRound{1, "rank 3 failed", std::nullopt}), "");
  EXPECT_EQ(Due(), "leave, sweep, exit 143");
}

TEST_F(BatchAgentMachineTest, OnSignal_SomebodyAsksAgainMeanwhile_ExitsAtOnce) {
  Run();
  Signal(SIGTERM, true);
  End({{0, Failure(0)}, {1, Failure(1)}});
  EXPECT_EQ(Signal(SIGINT), "leave, sweep, exit 143");
}

TEST_F(BatchAgentMachineTest, OnFinish_BeforeTheNodeHasLeft_CountsAndAfterItDoesNot) {
  Run();
  Signal(SIGTERM, true);
  EXPECT_EQ(Say(rendezvous::Finish{AgentMachineTest::Failed(7)}), "");
  EXPECT_EQ(End({{0, Failure(0)}, {1, Failure(1)}}), "sweep, exit 7");
}

// SLURM's signal had reached another node a little earlier, which left first.
TEST_F(BatchAgentMachineTest, OnFinish_BecauseAnotherNodeWasToldToStopToo_IsNoFailure) {
  Run();
  Signal(SIGTERM, true);
  Verdict verdict = AgentMachineTest::Failed(143);
  verdict.first_cause = WorkerFailure{.host = "there", .signal = SIGTERM};
  EXPECT_EQ(Say(rendezvous::Finish{verdict}), "");
  EXPECT_EQ(End({{0, Failure(0)}, {1, Failure(1)}}), "sweep, exit 143");
  EXPECT_EQ(machine_.NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST_F(BatchAgentMachineTest, OnFinish_AfterTheNodeHasLeft_DoesNotCount) {
  Run();
  Signal(SIGTERM, true);
  EXPECT_EQ(Due(), "leave");
  EXPECT_EQ(Say(rendezvous::Finish{AgentMachineTest::Failed(7)}), "");
  EXPECT_EQ(End({{0, Failure(0)}, {1, Failure(1)}}), "sweep, exit 143");
}

TEST_F(BatchAgentMachineTest, OnSignal_StoppingAfterAVerdict_TheVerdictStaysAndNobodyIsKilledEarly) {
  Run();
  EXPECT_EQ(Say(rendezvous::Finish{AgentMachineTest::Failed(7)}), "signal 15");
  EXPECT_EQ(Signal(SIGTERM, true), "");
  EXPECT_EQ(machine_.NextDeadline() - now_, absl::Seconds(27));
  EXPECT_EQ(End({{0, Failure(0)}, {1, Failure(1)}}), "sweep, exit 7");
}

TEST_F(BatchAgentMachineTest, OnWorkersEnded_MayBeASignalsWork_IsForgottenWhenTheSignalComes) {
  Run();
  EXPECT_EQ(End({Failed(0, FailureClass::kAskedToStop)}), "");
  EXPECT_EQ(End({Failed(1, FailureClass::kPeerError)}), "");
  EXPECT_EQ(Signal(SIGTERM, true), "");
  EXPECT_EQ(Due(), "leave, sweep, exit 143");
}

TEST_F(BatchAgentMachineTest, OnWorkersEnded_MayBeASignalsWork_IsForgottenWhenTheRoundIsOver) {
  Run();
  EXPECT_EQ(End({Failed(0, FailureClass::kPeerError)}), "");
  EXPECT_EQ(Say(rendezvous::StopRound{1, "node b received SIGTERM", std::nullopt}), "signal 15");
  EXPECT_EQ(End({{1, Failure(1)}}), "sweep, store, ready 1");
}

TEST_F(BatchAgentMachineTest, OnWorkersEnded_NoSignalComes_IsAFailureAfterAll) {
  Run();
  const SteadyTime failed = now_;
  EXPECT_EQ(End({Failed(0, FailureClass::kUnclear)}), "");
  now_ = now_ + absl::Milliseconds(100);
  EXPECT_EQ(End({Failed(1, FailureClass::kOwnError)}), "");
  EXPECT_EQ(Due(), "failed 1 rank 0, sweep, store, ready 1");
  EXPECT_EQ(now_ - failed, kSpread);
}

TEST_F(BatchAgentMachineTest, OnWorkersEnded_ALostPeerThenAnErrorOfItsOwn_TheErrorIsTheCause) {
  Run();
  EXPECT_EQ(End({Failed(0, FailureClass::kPeerError)}), "");
  EXPECT_EQ(End({Failed(1, FailureClass::kOwnError)}), "");
  EXPECT_EQ(Due(), "failed 1 rank 1, sweep, store, ready 1");
}

TEST_F(BatchAgentMachineTest, OnWorkersEnded_ACrash_IsToldAtOnce) {
  Run();
  EXPECT_EQ(End({Failed(0, FailureClass::kCrash)}), "failed 1 rank 0, signal 15");
  EXPECT_EQ(End({{1, Failure(1)}}), "sweep, store, ready 1");
  EXPECT_EQ(Say(rendezvous::Assign{Round(2)}), "spawn 2");
  EXPECT_EQ(End({Failed(0, FailureClass::kAskedToStop)}), "");
  EXPECT_EQ(End({Failed(1, FailureClass::kCrash)}), "failed 2 rank 1, sweep, store, ready 2");
}

TEST_F(AgentMachineTest, OnDisconnected_Running_WorkersRunOnAndTheNodeRejoinsWhereItStands) {
  Run();
  EXPECT_EQ(Lose(), "");
  EXPECT_NE(printed_.find("workers run on"), std::string::npos) << printed_;
  EXPECT_EQ(Connect(), "join 2 running");
  EXPECT_EQ(Say(rendezvous::Welcome{absl::InfiniteDuration()}), "");
  EXPECT_EQ(machine_.NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST_F(AgentMachineTest, OnDisconnected_ServerStaysAway_StopsTheWorkersAndSaysWhy) {
  Run();
  Lose();
  EXPECT_EQ(machine_.NextDeadline() - now_, absl::Seconds(30));
  EXPECT_EQ(Due(), "signal 15");
  EXPECT_NE(
      printed_.find("no rendezvous server at 10.0.0.1:29400 for 30s; here (10.0.0.2): connection refused; start it"),
      std::string::npos)
      << printed_;
  EXPECT_EQ(End({{0, Failure(0)}, {1, Failure(1)}}), "sweep, exit 1");
}

TEST_F(AgentMachineTest, OnWelcome_AfterAFailureThatWasNeverHeardOf_ReportsItBeforeReady) {
  Run();
  Lose();
  EXPECT_EQ(End({{0, Failure(0)}, {1, std::nullopt}}), "sweep, store") << "nobody to tell";
  EXPECT_EQ(Connect(), "join 2 stopping");
  EXPECT_EQ(Say(rendezvous::Welcome{absl::InfiniteDuration()}), "failed 1 rank 0, ready 1");
}

TEST_F(AgentMachineTest, OnWelcome_AfterSuccessWithoutServer_JoinTellsIt) {
  Run();
  Lose();
  EXPECT_EQ(End({{0, std::nullopt}, {1, std::nullopt}}), "sweep");
  EXPECT_EQ(Connect(), "join 2 succeeded");
}

TEST_F(AgentMachineTest, OnWelcome_WorkersSucceededAfterTheJoin_IsTold) {
  Run();
  Lose();
  EXPECT_EQ(Connect(), "join 2 running");
  EXPECT_EQ(End({{0, std::nullopt}, {1, std::nullopt}}), "sweep");
  EXPECT_EQ(Say(rendezvous::Welcome{absl::InfiniteDuration()}), "succeeded 1");
}

TEST_F(AgentMachineTest, OnWelcome_WorkersStoppedAfterTheJoin_IsTold) {
  Run();
  EXPECT_EQ(Say(rendezvous::StopRound{1, "node b was lost", std::nullopt}), "signal 15");
  Lose();
  EXPECT_EQ(Connect(), "join 2 stopping");
  EXPECT_EQ(End({{0, Failure(0)}, {1, Failure(1)}}), "sweep, store");
  EXPECT_EQ(Say(rendezvous::Welcome{absl::InfiniteDuration()}), "ready 1");
}

TEST_F(AgentMachineTest, OnDisconnected_BeforeTheFirstWelcome_WaitsForTheJoinTimeout) {
  EXPECT_EQ(Lose(), "");
  EXPECT_EQ(Due(), "");
  EXPECT_NE(printed_.find("waiting for the rendezvous server at 10.0.0.1:29400; here (10.0.0.2): connection refused"),
            std::string::npos)
      << printed_;
  std::string last;
  for (int i = 0; i < 20 && machine_.state() != State::kDone; ++i) last = Due();
  EXPECT_EQ(last, "sweep, exit 1");
  EXPECT_EQ(now_, SteadyTime::FromStart(absl::Seconds(1000) + absl::Minutes(10)));
}

TEST_F(AgentMachineTest, OnRejected_ExitsWithUsage) {
  Connect();
  EXPECT_EQ(Say(rendezvous::Rejected{"--nnodes is 2 on a but 3 on b"}), "sweep, exit 2");
  EXPECT_EQ(printed_, "--nnodes is 2 on a but 3 on b\n");
}

TEST_F(AgentMachineTest, OnDisconnected_Permanent_ExitsWithOne) { EXPECT_EQ(Lose(true), "sweep, exit 1"); }

TEST_F(AgentMachineTest, OnDeadline_Heartbeats_AreSentAndASilentServerIsLeft) {
  Connect();
  Say(rendezvous::Welcome{absl::Milliseconds(500)});
  EXPECT_EQ(Due(), "heartbeat");
  Say(rendezvous::HeartbeatAck{});
  std::string due;
  do {
    due = Due();
  } while (due == "heartbeat" || due.empty());
  EXPECT_EQ(due, "reset");
  EXPECT_EQ(now_ - SteadyTime::FromStart(absl::Seconds(1000)), absl::Seconds(15.5)) << "15 s after the last answer";
}

TEST_F(AgentMachineTest, OnConnected_ServerNeverAnswers_ConnectsAnew) {
  Connect();
  std::string due;
  do {
    due = Due();
  } while (due.empty());
  EXPECT_EQ(due, "reset");
  EXPECT_EQ(now_ - SteadyTime::FromStart(absl::Seconds(1000)), absl::Seconds(15));
}

TEST_F(AgentMachineTest, OnRanksJoined_SomeMissingAfterTenSeconds_AreReportedUntilAllHaveCome) {
  Run();
  machine_.OnRanksJoined(3, now_, &effects_);
  EXPECT_EQ(machine_.NextDeadline() - now_, absl::Seconds(10));
  EXPECT_EQ(Due(), "missing");
  EXPECT_EQ(Due(), "missing");
  machine_.OnRanksJoined(4, now_, &effects_);
  EXPECT_EQ(machine_.NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST_F(AgentMachineTest, OnStoreReached_NotWithinFiveSeconds_IsSaidOnce) {
  Connect();
  Say(rendezvous::Welcome{absl::InfiniteDuration()});
  Assignment second = Round(1);
  second.group_rank = 1;
  second.master_addr = "fd77::1";
  second.master_port = 41141;
  second.master_host = "head";
  Say(rendezvous::Assign{second});
  EXPECT_EQ(machine_.NextDeadline() - now_, absl::Seconds(5));
  EXPECT_EQ(Due(), "");
  EXPECT_EQ(printed_.find("here (10.0.0.2) can't reach the store of round 1 at [fd77::1]:41141 on head: no answer for "
                          "5s; its workers can't either: set --local-addr on head "),
            0u)
      << printed_;
  EXPECT_EQ(machine_.NextDeadline(), SteadyTime::InfiniteFuture());
  machine_.OnStoreReached(absl::UnavailableError("connection timed out"), now_, &effects_);
  EXPECT_TRUE(effects_.empty()) << "it has been said";
}

TEST_F(AgentMachineTest, OnStoreReached_InTimeOrRoundOver_NothingIsSaid) {
  Connect();
  Say(rendezvous::Welcome{absl::InfiniteDuration()});
  Assignment second = Round(1);
  second.group_rank = 1;
  Say(rendezvous::Assign{second});
  machine_.OnStoreReached(absl::OkStatus(), now_, &effects_);
  EXPECT_EQ(machine_.NextDeadline(), SteadyTime::InfiniteFuture());
  End({{0, Failure(0)}, {1, Failure(1)}});
  second.round = 2;
  Say(rendezvous::Assign{second});
  EXPECT_EQ(machine_.NextDeadline() - now_, absl::Seconds(5));
  machine_.OnStoreReached(absl::UnavailableError("connection refused"), now_, &effects_);
  EXPECT_EQ(machine_.NextDeadline() - now_, absl::Seconds(1)) << "the round may be over";
  End({{0, Failure(0)}, {1, Failure(1)}});
  EXPECT_GT(machine_.NextDeadline() - now_, absl::Seconds(5));
}

TEST_F(AgentMachineTest, OnServing_IsSaidWhileWaitingAndWhenThatWasInVain) {
  machine_.OnServing("this node serves at 127.0.0.1:29400");
  Connect();
  Say(rendezvous::Welcome{absl::InfiniteDuration()});
  rendezvous::Waiting waiting;
  waiting.nodes_joined = 1;
  waiting.min_nodes = waiting.max_nodes = 2;
  waiting.hosts = {"here"};
  waiting.remaining = absl::InfiniteDuration();
  Say(waiting);
  Due();
  EXPECT_EQ(printed_, "waiting for 1 more node; 1 of 2 joined (joined: here); this node serves at 127.0.0.1:29400\n");
  Say(rendezvous::Finish{Failed(1)});
  EXPECT_EQ(printed_, "this node serves at 127.0.0.1:29400\n");
}

TEST_F(AgentMachineTest, OnRanksJoined_NobodyComes_NothingIsReported) {
  Run();
  machine_.OnRanksJoined(0, now_, &effects_);
  EXPECT_EQ(machine_.NextDeadline(), SteadyTime::InfiniteFuture()) << "workers need not use the store";
}

TEST_F(AgentMachineTest, OnFatal_Running_LeavesStopsAndExitsWithOne) {
  Run();
  machine_.OnFatal("no port for the store", now_, &effects_);
  EXPECT_EQ(Take(), "leave, signal 15");
  EXPECT_EQ(End({{0, Failure(0)}, {1, Failure(1)}}), "sweep, exit 1");
}

TEST(AgentMachineShutdownTest, Stop_WithoutGrace_KillsAtOnce) {
  AgentSettings settings;
  settings.join.slots = 1;
  settings.shutdown_timeout = absl::ZeroDuration();
  const SteadyTime now;
  AgentMachine machine(settings, now);
  AgentMachine::Effects effects;
  machine.Start(now, &effects);
  machine.OnStoreOpened({1}, now, &effects);
  machine.OnConnected(now, &effects);
  machine.OnServerMessage(rendezvous::Welcome{absl::InfiniteDuration()}, now, &effects);
  Assignment assignment;
  assignment.round = 1;
  machine.OnServerMessage(rendezvous::Assign{assignment}, now, &effects);
  effects.clear();
  machine.OnServerMessage(rendezvous::StopRound{1, "", std::nullopt}, now, &effects);
  EXPECT_EQ(Render(effects), "kill");
}

TEST(AgentMachineExpectedHostsTest, WaitAndItsEnd_NameThoseThatHaveNotCome) {
  AgentSettings settings;
  settings.expected_hosts = {"node1", "node2", "node3"};
  const SteadyTime now;
  AgentMachine machine(settings, now);
  AgentMachine::Effects effects;
  machine.Start(now, &effects);
  machine.OnStoreOpened({1}, now, &effects);
  machine.OnConnected(now, &effects);
  machine.OnServerMessage(rendezvous::Welcome{absl::InfiniteDuration()}, now, &effects);
  rendezvous::Waiting waiting;
  waiting.nodes_joined = 2;
  waiting.min_nodes = waiting.max_nodes = 3;
  waiting.hosts = {"node1", "node2"};
  waiting.remaining = absl::Minutes(1);
  effects.clear();
  machine.OnServerMessage(waiting, now, &effects);
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_EQ(std::get<effect::ShowStatus>(effects[0]).text,
            "waiting for node3; 2 of 3 joined (joined: node1, node2); timing out in 1m0s");
  effects.clear();
  machine.OnServerMessage(rendezvous::Finish{Verdict{false, "only 2 of 3 nodes joined", std::nullopt, 1}}, now,
                          &effects);
  EXPECT_EQ(Printed(effects), "timed out waiting for node3\n");
  EXPECT_EQ(Render(effects), "sweep, exit 1");
}

}  // namespace
}  // namespace ddprun::launcher
