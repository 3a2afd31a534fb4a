// Stopping of a launcher, by a signal or because it cannot continue.
#include <gtest/gtest.h>
#include <signal.h>

#include <optional>

#include "tests/launcher/machine/agent_machine_fixture.h"
#include "tests/testing/text_proto.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Verdict;
using rendezvous::WorkerFailure;
using State = AgentMachine::State;

TEST_F(AgentMachineTest, OnSignal_Running_LeavesForwardsItAndExitsWithItsCode) {
  Run();
  EXPECT_EQ(Signal(SIGINT), "leave, signal 2");
  EXPECT_EQ(Signal(SIGINT), "kill") << "asked twice: no more patience";
  EXPECT_EQ(EndBadly(), "sweep, exit 130");
}

TEST_F(AgentMachineTest, OnSignal_Leave_HasTheSignal) {
  Run();
  machine_->OnSignal({SIGINT, "SIGINT from somebody"}, now_, &effects_);
  EXPECT_EQ(*Sent<rendezvous::Leave>(effects_), rendezvous::NewLeave("received SIGINT", true, SIGINT));
}

TEST_F(AgentMachineTest, OnSignal_Replaced_LeaveHasNoSignal) {
  AgentSettings settings = Settings();
  settings.replaced = true;
  Start(settings);
  Run();
  machine_->OnSignal({SIGTERM, "SIGTERM from somebody"}, now_, &effects_);
  EXPECT_EQ(*Sent<rendezvous::Leave>(effects_), rendezvous::NewLeave("received SIGTERM", true, 0));
}

TEST_F(AgentMachineTest, OnSignal_BeforeAnyRound_ExitsAtOnce) { EXPECT_EQ(Signal(SIGTERM), "sweep, exit 143"); }

TEST_F(AgentMachineTest, OnSignal_WhileStoppingForANewRound_ExitsInsteadOfGoingIdle) {
  Run();
  Say(rendezvous::NewStopRound(1, ""));
  EXPECT_EQ(Signal(SIGTERM), "leave");
  EXPECT_EQ(EndBadly(), "sweep, exit 143");
}

TEST_F(AgentMachineTest, OnSignal_Warning_IsPassedOn) {
  EXPECT_EQ(Signal(SIGUSR1), "");
  EXPECT_EQ(printed_, "received signal 10; no workers to pass it on to\n");
  Run();
  EXPECT_EQ(Signal(SIGUSR1), "signal 10");
  EXPECT_EQ(Signal(SIGUSR1, true), "signal 10") << "without a batch system the sender does not matter";
  EXPECT_EQ(machine_->state(), State::kRunning);
  EXPECT_EQ(Signal(SIGTERM), "leave, signal 15");
  EXPECT_EQ(Signal(SIGUSR1), "signal 10") << "a warning is no second request to stop";
}

// Under a batch system that signals every process.
class BatchAgentMachineTest : public AgentMachineTest {
 protected:
  BatchAgentMachineTest() {
    AgentSettings settings = Settings();
    settings.batch.emplace();
    settings.batch->signals_every_process = true;
    settings.shutdown_timeout = absl::Seconds(27);
    Start(settings);
  }

  static WorkerEnd Failed(int rank, FailureClass failure_class) {
    WorkerFailure failure = Failure(rank);
    switch (failure_class) {
      case FailureClass::kCrash: failure.set_signal(SIGSEGV); break;
      case FailureClass::kAskedToStop: failure.set_signal(SIGTERM); break;
      case FailureClass::kPeerError: failure.set_signal(SIGPIPE); break;
      default:
        failure.set_signal(0);
        failure.set_exit_code(1);
        failure.set_message(failure_class == FailureClass::kOwnError ? "ValueError" : "");
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

TEST_F(BatchAgentMachineTest, OnSignal_CtrlC_MessageExplainsTheSecond) {
  Run();
  Signal(SIGINT);
  EXPECT_EQ(printed_, "received signal 2; workers have 27s to save and end; press Ctrl-C again to kill them now\n");
}

TEST_F(BatchAgentMachineTest, OnSignal_OfTheBatchSystem_IsNotSentTwice) {
  Run();
  EXPECT_EQ(Signal(SIGTERM, true), "");
  EXPECT_EQ(printed_, "received signal 15; workers have 27s to save and end\n");
  const SteadyTime signalled = now_;
  EXPECT_EQ(Due(), "leave");
  EXPECT_EQ(now_ - signalled, kSpread);
  EXPECT_EQ(Signal(SIGTERM, true), "") << "its second SIGTERM is not impatience";
  EXPECT_EQ(Due(), "kill");
  EXPECT_EQ(now_ - signalled, absl::Seconds(27));
  EXPECT_EQ(EndBadly(), "sweep, exit 143");
}

TEST_F(BatchAgentMachineTest, OnSignal_NotOfTheBatchSystem_IsPassedOnAtOnce) {
  Run();
  EXPECT_EQ(Signal(SIGTERM), "leave, signal 15");
  EXPECT_EQ(Signal(SIGTERM), "kill");
}

TEST_F(BatchAgentMachineTest, OnSignal_WorkersEndAtOnce_LeaveIsDelayed) {
  Run();
  EXPECT_EQ(Signal(SIGTERM, true), "");
  EXPECT_EQ(End({{0, Failure(0)}, {1, std::nullopt}}), "");
  EXPECT_EQ(Say(rendezvous::NewStopRound(1, "rank 3 failed")), "");
  EXPECT_EQ(Due(), "leave, sweep, exit 143");
}

TEST_F(BatchAgentMachineTest, OnSignal_SecondDuringTheDelay_ExitsAtOnce) {
  Run();
  Signal(SIGTERM, true);
  EndBadly();
  EXPECT_EQ(Signal(SIGINT), "leave, sweep, exit 143");
}

TEST_F(BatchAgentMachineTest, OnFinish_BeforeTheNodeHasLeft_Counts) {
  Run();
  Signal(SIGTERM, true);
  EXPECT_EQ(Say(rendezvous::NewFinish(AgentMachineTest::Failed(7))), "");
  EXPECT_EQ(EndBadly(), "sweep, exit 7");
}

TEST_F(BatchAgentMachineTest, OnFinish_AfterTheNodeHasLeft_DoesNotCount) {
  Run();
  Signal(SIGTERM, true);
  EXPECT_EQ(Due(), "leave");
  EXPECT_EQ(Say(rendezvous::NewFinish(AgentMachineTest::Failed(7))), "");
  EXPECT_EQ(EndBadly(), "sweep, exit 143");
}

// SLURM's signal reached another node a little earlier, and that node left first.
TEST_F(BatchAgentMachineTest, OnFinish_AnotherNodeReceivedTheSignal_IsNoFailure) {
  Run();
  Signal(SIGTERM, true);
  Verdict verdict = AgentMachineTest::Failed(143);
  *verdict.mutable_first_cause() = TextProto("host: 'there' signal: 15", rendezvous::NewFailure());
  EXPECT_EQ(Say(rendezvous::NewFinish(verdict)), "");
  EXPECT_EQ(EndBadly(), "sweep, exit 143");
  EXPECT_EQ(machine_->NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST_F(BatchAgentMachineTest, OnSignal_StoppingAfterAVerdict_KeepsVerdictAndGrace) {
  Run();
  EXPECT_EQ(Say(rendezvous::NewFinish(AgentMachineTest::Failed(7))), "signal 15");
  EXPECT_EQ(Signal(SIGTERM, true), "");
  EXPECT_EQ(machine_->NextDeadline() - now_, absl::Seconds(27));
  EXPECT_EQ(EndBadly(), "sweep, exit 7");
}

TEST_F(BatchAgentMachineTest, OnWorkersEnded_SignalFollows_FailureIsDiscarded) {
  Run();
  EXPECT_EQ(End({Failed(0, FailureClass::kAskedToStop)}), "");
  EXPECT_EQ(End({Failed(1, FailureClass::kPeerError)}), "");
  EXPECT_EQ(Signal(SIGTERM, true), "");
  EXPECT_EQ(Due(), "leave, sweep, exit 143");
}

TEST_F(BatchAgentMachineTest, OnWorkersEnded_RoundEnds_FailureIsDiscarded) {
  Run();
  EXPECT_EQ(End({Failed(0, FailureClass::kPeerError)}), "");
  EXPECT_EQ(Say(rendezvous::NewStopRound(1, "node b received SIGTERM")), "signal 15");
  EXPECT_EQ(End({{1, Failure(1)}}), "sweep, store, ready 1");
}

TEST_F(BatchAgentMachineTest, OnWorkersEnded_NoSignal_FailureIsReported) {
  Run();
  const SteadyTime failed = now_;
  EXPECT_EQ(End({Failed(0, FailureClass::kUnclear)}), "");
  now_ = now_ + absl::Milliseconds(100);
  EXPECT_EQ(End({Failed(1, FailureClass::kOwnError)}), "");
  EXPECT_EQ(Due(), "failed 1 rank 0, sweep, store, ready 1");
  EXPECT_EQ(now_ - failed, kSpread);
}

TEST_F(BatchAgentMachineTest, OnWorkersEnded_PeerErrorThenOwnError_OwnErrorIsTheCause) {
  Run();
  EXPECT_EQ(End({Failed(0, FailureClass::kPeerError)}), "");
  EXPECT_EQ(End({Failed(1, FailureClass::kOwnError)}), "");
  EXPECT_EQ(Due(), "failed 1 rank 1, sweep, store, ready 1");
}

TEST_F(BatchAgentMachineTest, OnWorkersEnded_Crash_IsReportedAtOnce) {
  Run();
  EXPECT_EQ(End({Failed(0, FailureClass::kCrash)}), "failed 1 rank 0, signal 15");
  EXPECT_EQ(End({{1, Failure(1)}}), "sweep, store, ready 1");
  EXPECT_EQ(Say(rendezvous::NewAssign(Round(2))), "spawn 2");
  EXPECT_EQ(End({Failed(0, FailureClass::kAskedToStop)}), "");
  EXPECT_EQ(End({Failed(1, FailureClass::kCrash)}), "failed 2 rank 1, sweep, store, ready 2");
}

// The command for the job's end (protocol 5).

class EndCommandMachineTest : public AgentMachineTest {
 protected:
  EndCommandMachineTest() { StartWith(false); }
  void StartWith(bool is_only_node) {
    AgentSettings settings = Settings();
    settings.has_end_command = true;
    settings.is_only_node = is_only_node;
    Start(std::move(settings));
  }
  static rendezvous::Finish Finish(bool runs_end_command, Verdict verdict = AgentMachineTest::Failed(7)) {
    rendezvous::Finish finish = rendezvous::NewFinish(std::move(verdict));
    finish.set_runs_end_command(runs_end_command);
    return finish;
  }
};

TEST_F(EndCommandMachineTest, OnFinish_ChosenNode_RunsIt) {
  for (const bool chosen : {true, false}) {
    StartWith(false);
    Run();
    EXPECT_EQ(Say(Finish(chosen)), "signal 15");
    EXPECT_EQ(EndBadly(), chosen ? "sweep, exit 7, end command" : "sweep, exit 7");
  }
}

TEST_F(EndCommandMachineTest, OnSignal_ServerAnswersBeforeTheWorkersEnd_NothingIsWaitedFor) {
  Run();
  EXPECT_EQ(Signal(SIGTERM), "leave, signal 15");
  EXPECT_EQ(Say(Finish(true)), "");
  EXPECT_EQ(EndBadly(), "sweep, exit 143, end command") << "the launcher's own code";
}

TEST_F(EndCommandMachineTest, OnSignal_WorkersAreGone_WaitsForTheAnswer) {
  const auto stop = [&] {
    StartWith(false);
    Run();
    EXPECT_EQ(Signal(SIGTERM), "leave, signal 15");
    EXPECT_EQ(EndBadly(), "");
  };
  stop();
  EXPECT_EQ(Say(Finish(true)), "sweep, exit 143, end command");
  stop();
  EXPECT_EQ(Say(Finish(false)), "sweep, exit 143");
  stop();
  EXPECT_EQ(Lose(), "sweep, exit 143") << "the server has ended the stream: the job goes on";
  stop();
  EXPECT_EQ(Signal(SIGTERM), "sweep, exit 143");
  stop();
  const SteadyTime gone = now_;
  EXPECT_EQ(Due(), "sweep, exit 143");
  EXPECT_EQ(now_ - gone, absl::Seconds(1));
}

TEST_F(EndCommandMachineTest, OnSignal_ServerIsLost_NobodyAnswers) {
  Run();
  Lose();
  EXPECT_EQ(Signal(SIGTERM), "signal 15");
  EXPECT_EQ(EndBadly(), "sweep, exit 143");
}

TEST_F(EndCommandMachineTest, OnlyNode_EveryEnd_RunsIt) {
  StartWith(true);
  Run();
  EXPECT_EQ(Signal(SIGTERM), "leave, signal 15");
  EXPECT_EQ(EndBadly(), "sweep, exit 143, end command");
  StartWith(true);
  EXPECT_EQ(Signal(SIGTERM), "sweep, exit 143, end command");
  StartWith(true);
  Run();
  Say(Finish(false));
  EXPECT_EQ(EndBadly(), "sweep, exit 7, end command");
}

}  // namespace
}  // namespace ddprun::launcher
