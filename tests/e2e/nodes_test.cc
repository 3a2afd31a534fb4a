// Several launchers on one host, each a node of a job.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cstdio>
#include <memory>
#include <regex>

#include "absl/time/clock.h"
#include "base/text.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

// Holds the workers until the test opens the gate (a file); then they succeed.
class Gate {
 public:
  std::string Wait() const { return "while [ ! -e " + dir_.File("open") + " ]; do sleep 0.02; done; "; }
  void Open() const { Touch(dir_.File("open")); }

 private:
  TempDir dir_;
};

class NodesTest : public ::testing::Test {
 protected:
  const int port_ = FreePort();
  Gate gate_;
  // Workers that print their ranks, and then wait for the gate, or sleep until they are killed.
  const std::string waits_ = kSayRank + gate_.Wait();
  const std::string sleeps_ = std::string(kSayRank) + "exec sleep 1000";
};

TEST_F(NodesTest, Start_TwoNodes_OneWorldAndMaster) {
  const std::string script = std::string(kSayRank) + "echo master=$MASTER_ADDR:$MASTER_PORT";
  Launcher a(NodeFlags(port_, "2", 2, {}, script)), b(NodeFlags(port_, "2", 2, {}, script));
  ExpectEnd({&a, &b});
  const std::string all = a.Out() + b.Out();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(Count(all, absl::StrCat("rank=", rank, "/4")), 1) << all;
  }
  const size_t at = all.find("master=");
  const std::string master = all.substr(at, all.find('\n', at) - at);
  EXPECT_EQ(Count(all, master + "\n"), 4) << all;
}

TEST_F(NodesTest, LocalRanksFilter_Global_ShowsRanksOfTheJob) {
  const std::vector<std::string> filter = {"--local-ranks-filter=global:0,3"};
  Launcher a(NodeFlags(port_, "2", 2, filter, kSayRank)), b(NodeFlags(port_, "2", 2, filter, kSayRank));
  ExpectEnd({&a, &b});
  const std::string all = a.Out() + b.Out();
  EXPECT_EQ(Lines(all), 2) << all;
  for (const char* rank : {"rank=0/4", "rank=3/4"}) EXPECT_THAT(all, HasSubstr(rank));
}

TEST_F(NodesTest, StaticBackend_OnlyMasterAddrAndPort_Works) {
  const std::string port = absl::StrCat("--master-port=", FreePort());
  auto flags = [&](int rank) {
    return std::vector<std::string>{
        "--nnodes=2", absl::StrCat("--node_rank=", rank), "--master_addr=127.0.0.1", port, "--no-python", "sh", "-c",
        kSayRank};
  };
  Launcher a(flags(1)), b(flags(0));
  ExpectEnd({&a, &b});
  EXPECT_THAT(a.Out(), HasSubstr("rank=1/2"));
}

TEST_F(NodesTest, WorkerFailure_OneNode_AllNodesRestartOnce) {
  const std::string script = std::string(kSayRank) +
                             "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then "
                             "if [ $RANK = 3 ]; then exit 5; fi; exec sleep 1000; fi";
  Launcher a(NodeFlags(port_, "2", 2, {"--max-restarts=1"}, script));
  Launcher b(NodeFlags(port_, "2", 2, {"--max-restarts=1"}, script));
  ExpectEnd({&a, &b});
  EXPECT_EQ(Count(a.Out(), "attempt=1"), 2) << a.Out();
  EXPECT_EQ(Count(b.Out(), "attempt=1"), 2) << b.Out();
}

TEST_F(NodesTest, WorkerFailure_NoRestartLeft_EveryNodeExitsWithFirstCausesCode) {
  const std::string script = "if [ $RANK = 2 ]; then exit 5; fi; exec sleep 1000";
  Launcher a(NodeFlags(port_, "2", 2, {}, script)), b(NodeFlags(port_, "2", 2, {}, script));
  ExpectEnd({&a, &b}, 5);
  for (Launcher* launcher : {&a, &b}) {
    EXPECT_NE(launcher->Err().find("FAILED"), std::string::npos) << launcher->Err();
    EXPECT_NE(launcher->Err().find("rank      : 2"), std::string::npos) << launcher->Err();
  }
}

TEST_F(NodesTest, WorkerFailure_NonRestartable_AllEndWithItsCode) {
  const std::string script = "if [ $RANK = 1 ]; then exit 78; fi; exec sleep 1000";
  Launcher a(NodeFlags(port_, "2", 1, {"--max-restarts=5"}, script));
  Launcher b(NodeFlags(port_, "2", 1, {"--max-restarts=5"}, script));
  ExpectEnd({&a, &b}, 78);
  for (Launcher* launcher : {&a, &b}) {
    EXPECT_NE(launcher->Err().find("(non-restartable)"), std::string::npos) << launcher->Err();
    EXPECT_EQ(launcher->Err().find("new round"), std::string::npos) << launcher->Err();
  }
}

TEST_F(NodesTest, NodeLost_FixedSize_FailsAfterJoinTimeoutAndNamesNode) {
  Rendezvousd server(port_);
  const std::vector<std::string> flags = {"--rdzv-conf=join_timeout=2", "--max-restarts=1"};
  Launcher a(NodeFlags(port_, "3", 1, flags, sleeps_)), b(NodeFlags(port_, "3", 1, flags, sleeps_)),
      c(NodeFlags(port_, "3", 1, flags, sleeps_));
  ASSERT_TRUE(AllSay({&a, &b, &c}, "/3 local", 3));
  c.Signal(SIGKILL);
  for (Launcher* launcher : {&a, &b}) {
    EXPECT_EQ(launcher->Wait(), 1) << launcher->Err();
    const std::string err = launcher->Err();
    const size_t summary = err.find("FAILED");
    ASSERT_NE(summary, std::string::npos) << err;
    EXPECT_THAT(err.substr(summary), HasSubstr(" lost: disconnected and did not reconnect within 80ms"));
  }
}

TEST_F(NodesTest, NodeLost_FixedSizeWithoutRestarts_AllEndAtOnce) {
  Rendezvousd server(port_);
  Launcher a(NodeFlags(port_, "2", 1, {}, sleeps_)), b(NodeFlags(port_, "2", 1, {}, sleeps_));
  ASSERT_TRUE(AllSay({&a, &b}, "/2 local", 2));
  b.Signal(SIGKILL);
  EXPECT_EQ(a.Wait(), 1) << a.Err();
  EXPECT_THAT(OneLine(a.Err(), SIZE_MAX), HasSubstr("; the job needs all 2 nodes, and restarts are disabled"));
  EXPECT_THAT(a.Err(), Not(HasSubstr("new round")));
}

// Parameter: whether the stopped launcher hosts the server.
class ToldToStopTest : public NodesTest, public ::testing::WithParamInterface<bool> {};

TEST_P(ToldToStopTest, Signal_OneNodeOfFixedSize_OthersStopLikewise) {
  const std::vector<std::string> flags = {"--max-restarts=3"};
  Launcher host(NodeFlags(port_, "3", 1, flags, sleeps_));
  ASSERT_TRUE(Eventually([&] { return CanConnect(port_); })) << host.Err();
  Launcher other(NodeFlags(port_, "3", 1, flags, sleeps_)), third(NodeFlags(port_, "3", 1, flags, sleeps_));
  ASSERT_TRUE(AllSay({&host, &other, &third}, "/3 local", 3));
  Launcher& told = GetParam() ? host : other;
  told.Signal(SIGINT);
  for (Launcher* launcher : {&host, &other, &third}) {
    EXPECT_EQ(launcher->Wait(), 128 + SIGINT) << launcher->Err();
    const bool says = launcher->Err().find("left: received SIGINT; the job needs all 3 nodes") != std::string::npos;
    EXPECT_EQ(says, launcher != &told) << launcher->Err();
  }
}

INSTANTIATE_TEST_SUITE_P(Which, ToldToStopTest, ::testing::Bool());

TEST_F(NodesTest, Start_ProgramMissingOnOneNode_AllFail) {
  Launcher a(NodeFlags(port_, "2", 1, {"--max-restarts=5"}, "exec sleep 1000"));
  Launcher b({"--nnodes=2", absl::StrCat("--rdzv-endpoint=127.0.0.1:", port_), "--rdzv-id=job", "--max-restarts=5",
              "--no-python", "/no/such/program"});
  ExpectEnd({&a, &b}, 127);
}

// Elastic flags with a short last call.
std::vector<std::string> Elastic() { return {"--rdzv-conf=last_call_timeout=0.2"}; }

TEST_F(NodesTest, HostingLauncherKilled_AnotherOnThatHost_TakesOver) {
  const std::vector<std::string> flags = {"--rdzv-conf=last_call_timeout=0.2,heartbeat_timeout=0.5"};
  Launcher host(NodeFlags(port_, "1:2", 1, flags, waits_));
  ASSERT_TRUE(host.WaitForOut("rank=0/1")) << host.Err();  // it keeps that rank
  Launcher other(NodeFlags(port_, "1:2", 1, flags, waits_));
  ASSERT_TRUE(other.WaitForOut("rank=1/2")) << other.Err();
  host.Signal(SIGKILL);
  ASSERT_TRUE(other.WaitForErr("took over the rendezvous server")) << other.Err();
  ASSERT_TRUE(other.WaitForOut("rank=0/1")) << other.Err();
  gate_.Open();
  EXPECT_EQ(other.Wait(), 0) << other.Err();
}

// The old server's node has certainly ended (protocol 4.4): the new server does not wait for it.
TEST_F(NodesTest, HostingLauncherKilled_ItsNode_IsNotAwaited) {
  const std::vector<std::string> flags = {"--rdzv-conf=last_call_timeout=0.2,heartbeat_timeout=600"};
  Launcher host(NodeFlags(port_, "1:2", 1, flags, waits_));
  ASSERT_TRUE(Eventually([&] { return CanConnect(port_); })) << host.Err();
  Launcher other(NodeFlags(port_, "1:2", 1, flags, waits_));
  ASSERT_TRUE(other.WaitForOut("/2 local=")) << other.Err();  // either may have joined first
  const absl::Time killed = absl::Now();
  host.Signal(SIGKILL);
  ASSERT_TRUE(other.WaitForOut("rank=0/1")) << other.Err();
  std::printf("a new round %s after the kill\n", absl::FormatDuration(absl::Now() - killed).c_str());
  EXPECT_THAT(other.Err(), HasSubstr("that hosted the rendezvous server has ended"));
  gate_.Open();
  EXPECT_EQ(other.Wait(), 0) << other.Err();
}

TEST_F(NodesTest, HostingLauncherKilled_OthersMayNotHost_StopWithReason) {
  Launcher host(NodeFlags(port_, "2", 1, {"--rdzv-conf=reconnect_timeout=0.5"}, sleeps_));
  Launcher other(NodeFlags(port_, "2", 1, {"--rdzv-conf=reconnect_timeout=0.5,is_host=0"}, sleeps_));
  ASSERT_TRUE(other.WaitForOut("/2 local")) << other.Err();
  host.Signal(SIGKILL);
  EXPECT_EQ(other.Wait(), 1);
  EXPECT_THAT(other.Err(), HasSubstr("no rendezvous server"));
}

TEST_F(NodesTest, NodeLost_LauncherAndWorkersKilled_SurvivorStartsNewRound) {
  Rendezvousd server(port_);
  Launcher a(NodeFlags(port_, "1:2", 2, Elastic(), waits_)), b(NodeFlags(port_, "1:2", 2, Elastic(), waits_));
  ASSERT_TRUE(AllSay({&a, &b}, "/4 local", 4));
  b.Signal(SIGKILL);
  ASSERT_TRUE(Eventually([&] { return Count(a.Out(), "/2 local") >= 2 && Count(a.Out(), "round=2") == 2; })) << a.Err();
  EXPECT_EQ(Count(a.Out(), "attempt=1"), 0) << "a lost node is not charged to the budget";
  gate_.Open();
  EXPECT_EQ(a.Wait(), 0) << a.Err();
}

TEST_F(NodesTest, NodeLost_LauncherStopped_RejoinsAsLateNode) {
  for (const bool guard_killed : {false, true}) {
    const int port = FreePort();
    const Gate gate;
    Rendezvousd server(port);
    const std::vector<std::string> flags = {"--rdzv-conf=last_call_timeout=0.2,heartbeat_timeout=2"};
    const std::string waits = kSayRank + gate.Wait();
    Launcher a(NodeFlags(port, "1:2", 1, flags, waits)), b(NodeFlags(port, "1:2", 1, flags, waits));
    ASSERT_TRUE(AllSay({&a, &b}, "/2 local", 2));
    const std::string said = b.Out();
    const pid_t worker = std::stoi(said.substr(said.find("pid=") + 4));
    if (guard_killed) {
      const std::string kill_guard =
          absl::StrCat("for p in $(cat /proc/", b.pid(), "/task/", b.pid(), "/children); do ",
                       "[ \"$(cat /proc/$p/comm)\" != ddprun-guard ] || { kill -9 $p; exit; }; done; exit 1");
      // The guard sets its name some time after the fork.
      ASSERT_TRUE(Eventually([&] { return Process({"/bin/sh", "-c", kill_guard}).Wait() == 0; })) << "no guard found";
      ASSERT_TRUE(b.WaitForErr("was killed; started another one")) << b.Err();
    }
    b.Signal(SIGSTOP);
    ASSERT_TRUE(a.WaitForOut("rank=0/1")) << a.Err();
    EXPECT_FALSE(Alive(worker)) << "its guard must kill it; killed before: " << guard_killed;
    b.Signal(SIGCONT);
    ASSERT_TRUE(AllSay({&a, &b}, "/2 local", 4));
    gate.Open();
    ExpectEnd({&a, &b});
  }
}

// An orphan cannot be reaped during the launcher's grace period, which is longer than the heartbeat timeout.
TEST_F(NodesTest, Heartbeat_OrphanStuck_NodeIsNotLost) {
  Rendezvousd server(port_);
  TempDir dir;
  const std::string script =
      absl::StrCat(kSayRank, "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; if [ $RANK = 0 ]; then ",
                   "setsid sh -c 'echo orphan=$$ .; exec sleep 1000' & fi; while [ ! -e ", dir.File("fail"),
                   " ]; do sleep 0.02; done; exit 3");
  const std::vector<std::string> flags = {"--max-restarts=1", "--rdzv-conf=heartbeat_timeout=0.6"};
  Launcher a(NodeFlags(port_, "2", 1, flags, script)), b(NodeFlags(port_, "2", 1, flags, script));
  ASSERT_TRUE(AllSay({&a, &b}, "orphan=", 1));
  const std::string said = a.Out() + b.Out();
  // While the orphan is traced, its tracer is notified of its death first.
  const pid_t orphan = std::stoi(said.substr(said.find("orphan=") + 7));
  if (ptrace(PTRACE_SEIZE, orphan, nullptr, nullptr) != 0) GTEST_SKIP() << "tracing is not allowed here";
  Touch(dir.File("fail"));
  ExpectEnd({&a, &b});
  EXPECT_EQ(Count(a.Err() + b.Err(), "1 process started by workers still alive after SIGKILL"), 1)
      << a.Err() << b.Err();
  EXPECT_EQ(Count(server.Err(), " lost"), 0) << server.Err();
  EXPECT_EQ(Count(a.Out() + b.Out(), "round=2"), 2) << a.Out() << b.Out();
  waitpid(orphan, nullptr, __WALL);
}

TEST_F(NodesTest, NextRound_InterruptedNodesWorkerIsSlow_WaitsForIt) {
  Rendezvousd server(port_);
  TempDir dir;
  const std::string saved = dir.File("saved");
  const std::string script = absl::StrCat("[ -e ", saved, " ] && echo \"after round=$DDPRUN_ROUND\"; ",
                                          "if [ $RANK = 1 ]; then trap 'sleep 1; touch ", saved, "; exit 0' TERM; fi; ",
                                          kSayRank, gate_.Wait());
  Launcher a(NodeFlags(port_, "1:2", 1, Elastic(), script));
  Launcher b(NodeFlags(port_, "1:2", 1, Elastic(), script));
  ASSERT_TRUE(AllSay({&a, &b}, "/2 local", 2));
  Launcher& leaver = Count(a.Out(), "rank=1/2") > 0 ? a : b;
  Launcher& other = &leaver == &a ? b : a;
  leaver.Signal(SIGTERM);
  ASSERT_TRUE(other.WaitForOut("rank=0/1")) << other.Err();
  EXPECT_EQ(Count(other.Out(), "after round=2"), 1) << other.Out();
  gate_.Open();
  EXPECT_EQ(other.Wait(), 0) << other.Err();
  EXPECT_EQ(leaver.Wait(), 128 + SIGTERM) << leaver.Err();
}

// Node b is stopping and its worker never ends; node a, which hosts the server, has stopped and waits for b.
class LeaverTest : public ::testing::Test {
 protected:
  LeaverTest() {
    EXPECT_TRUE(Eventually([&] { return CanConnect(port_); })) << a_.Err();
    b_ = std::make_unique<Launcher>(Flags("trap '' TERM; echo up; while :; do sleep 1000; done"));
    EXPECT_TRUE(b_->WaitForOut("up")) << b_->Err();
    b_->Signal(SIGTERM);
    EXPECT_TRUE(a_.WaitForErr("press Ctrl-C or send a signal to exit at once")) << a_.Err();
  }
  std::vector<std::string> Flags(const std::string& script) const {
    return NodeFlags(port_, "2", 1, {"--shutdown-timeout=1000"}, script);
  }

  const int port_ = FreePort();
  Launcher a_{Flags("exec sleep 1000")};
  std::unique_ptr<Launcher> b_;
};

TEST_F(LeaverTest, HostingLauncherLeaves_SecondSignal_EndsItAtOnce) {
  a_.Signal(SIGINT);
  EXPECT_EQ(a_.Wait(), 128 + SIGTERM) << a_.Err();
  // Without a server its worker may not continue.
  EXPECT_EQ(b_->Wait(), 128 + SIGTERM) << b_->Err();
}

TEST_F(LeaverTest, HostingLauncherLeaves_SilentNode_IsNotAwaited) {
  b_->Signal(SIGSTOP);
  EXPECT_EQ(a_.Wait(), 128 + SIGTERM) << a_.Err();
}

TEST_F(NodesTest, Address_DefaultAndFlag_AreShown) {
  auto flags = [&](std::vector<std::string> more) { return NodeFlags(port_, "2", 1, more, "echo at=$MASTER_ADDR"); };
  Launcher a(flags({"--node-rank=0"})), b(flags({"--local-addr=127.0.0.2"}));
  ExpectEnd({&a, &b});
  EXPECT_THAT(a.Err(), HasSubstr("(127.0.0.1)"));
  EXPECT_THAT(b.Err(), HasSubstr("(127.0.0.2)"));
  EXPECT_EQ(b.Out(), "at=127.0.0.1\n");
}

TEST_F(NodesTest, NodeLost_HotSpare_TakesItsPlace) {
  Rendezvousd server(port_);
  Launcher a(NodeFlags(port_, "2", 1, {}, waits_)), b(NodeFlags(port_, "2", 1, {}, waits_));
  ASSERT_TRUE(AllSay({&a, &b}, "/2 local", 2));
  Launcher spare(NodeFlags(port_, "2", 1, {}, waits_));
  // It must join before it is needed; otherwise it would be a replacement.
  ASSERT_TRUE(Eventually([&] { return Count(server.Err(), " 1 worker) joined") == 3; })) << server.Err();
  b.Signal(SIGKILL);
  ASSERT_TRUE(spare.WaitForOut("/2 local")) << spare.Err() << a.Err();
  gate_.Open();
  ExpectEnd({&a, &spare});
}

TEST_F(NodesTest, JoinTimeout_NodeMissing_FailsAndNamesJoinedNodes) {
  Finished a(1, NodeFlags(port_, "2", 1, {"--rdzv-conf=join_timeout=1"}, "exit 0"));
  const std::string said = std::regex_replace(a.Err(), std::regex("\\s+"), " ");  // the summary breaks lines
  for (const std::string& part :
       {std::string("timed out: 1 of 2 nodes joined within 1s: "),
        absl::StrCat("start ddprun on the other nodes with the same --rdzv-endpoint=127.0.0.1:", port_,
                     " and --rdzv-id=")}) {
    EXPECT_THAT(said, HasSubstr(part));
  }
}

TEST_F(NodesTest, ServerKilled_Restarted_WorkersKeepRunning) {
  auto server = std::make_unique<Rendezvousd>(port_);
  Launcher a(NodeFlags(port_, "2", 1, {}, waits_)), b(NodeFlags(port_, "2", 1, {}, waits_));
  ASSERT_TRUE(AllSay({&a, &b}, "/2 local", 2));
  server->Signal(SIGKILL);
  ASSERT_TRUE(a.WaitForErr("lost the rendezvous server")) << a.Err();
  server = nullptr;
  server = std::make_unique<Rendezvousd>(port_);
  ASSERT_TRUE(a.WaitForErr("again")) << a.Err();
  ASSERT_TRUE(b.WaitForErr("reached the rendezvous server")) << b.Err();
  gate_.Open();
  ExpectEnd({&a, &b});
  EXPECT_EQ(Count(a.Out() + b.Out(), "rank="), 2) << "no worker was restarted";
}

// The error of the rendezvous does not hide the worker's.
TEST_F(NodesTest, ServerKilled_WorkerFailsThen_LauncherExitsWithItsCode) {
  Rendezvousd server(port_);
  Launcher a(NodeFlags(port_, "1:2", 1, {"--rdzv-conf=last_call_timeout=0,reconnect_timeout=1"}, waits_ + "exit 7"));
  ASSERT_TRUE(AllSay({&a}, "/1 local", 1));
  server.Signal(SIGKILL);
  ASSERT_TRUE(a.WaitForErr("lost the rendezvous server")) << a.Err();
  gate_.Open();
  EXPECT_EQ(a.Wait(), 7) << a.Err();
  EXPECT_THAT(a.Err(),
              AllOf(HasSubstr("Root Cause"), HasSubstr("exitcode  : 7 "), HasSubstr("code 7; the rendezvous server")));
}

TEST_F(NodesTest, Join_SettingsDiffer_IsRefusedWithBothValues) {
  Rendezvousd server(port_);
  auto flags = [&](const char* restarts) {
    return NodeFlags(port_, "2", 1, {restarts, "--rdzv-conf=join_timeout=5"}, "exit 0");
  };
  Launcher a(flags("--max-restarts=1")), b(flags("--max-restarts=3"));
  const int code_a = a.Wait(), code_b = b.Wait();
  EXPECT_EQ(code_a + code_b, 2 + 1) << "the second is rejected; the first times out";
  const std::string err = (code_a == 2 ? a : b).Err();
  EXPECT_EQ(Lines(err), 1) << err;
  EXPECT_THAT(err, HasSubstr("--max-restarts"));
}

// The program at the endpoint is another one, which never answers or does not speak gRPC.
TEST_F(NodesTest, Endpoint_PortOfAnotherProgram_IsNamed) {
  for (const bool answers : {false, true}) {
    const int port = FreePort();
    const std::string reply =
        answers ? R"(c.append(s.accept()[0]); c[-1].sendall(b'HTTP/1.1 400 Bad Request\r\n\r\n'))" : "signal.pause()";
    Process other({"/usr/bin/env", "python3", "-c",
                   absl::StrCat("import socket, signal\ns = socket.socket()\ns.bind(('127.0.0.1', ", port,
                                "))\ns.listen()\nprint('up', flush=True)\nc = []\nwhile True:\n  ", reply)});
    ASSERT_TRUE(other.WaitForOut("up")) << other.Err();
    Finished a(1, NodeFlags(port, "2", 1, {"--rdzv-conf=join_timeout=1"}, "exit 0"));
    const std::string endpoint = absl::StrCat("127.0.0.1:", port);
    const std::string cause =
        answers ? absl::StrCat("tried ", endpoint, ": not a ddprun rendezvous server") : "no answer";
    EXPECT_THAT(a.Err(), HasSubstr(absl::StrCat("ddprun: no rendezvous server at ", endpoint, " for 1s; ")));
    EXPECT_NE(
        a.Err().find(absl::StrCat(" (127.0.0.1): ", cause, "; start it there, or set --rdzv-endpoint to where it is")),
        std::string::npos)
        << a.Err();
  }
}

// Protocol 3.9. The excluded launcher waits as a spare and exits like the job.
TEST_F(NodesTest, NodeCooldown_WorkersOfOneNodeAlwaysFail_OthersFinish) {
  const std::vector<std::string> flags = {"--max-restarts=3", "--rdzv-conf=last_call_timeout=60"};
  const std::string waits_for_two = std::string(kSayRank) + "[ $WORLD_SIZE = 2 ] || exec sleep 1000";
  Launcher a(NodeFlags(port_, "2:3", 1, flags, waits_for_two)), b(NodeFlags(port_, "2:3", 1, flags, waits_for_two));
  Launcher bad(NodeFlags(port_, "2:3", 1, flags, "exit 7"));
  ExpectEnd({&a, &b, &bad});
  EXPECT_EQ(Count(bad.Err(), " of 3; master"), 3) << bad.Err();
  EXPECT_NE(bad.Err().find("is left out for 1m (node_cooldown): its workers failed first in 3 rounds in a row"),
            std::string::npos)
      << bad.Err();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(Count(a.Out() + b.Out(), absl::StrCat("rank=", rank, "/2")), 1) << a.Out() << b.Out();
  }
}

}  // namespace
}  // namespace ddprun::testing
