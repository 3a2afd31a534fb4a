#include "launcher/hosts/hosts_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddprun::launcher {
namespace {

using hosts::v1::HostCommand;
using hosts::v1::HostReport;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A machine and what it has asked for, as text.
class HostsMachineTest : public ::testing::Test, public HostsShell {
 protected:
  void Begin(const std::string& hosts, HostsPlan plan = {}) {
    plan.hosts = *ParseHosts(hosts);
    if (plan.min_nodes == 1 && !plan.has_node_count) plan.min_nodes = static_cast<int>(plan.hosts.size());
    plan.flags.push_back("--max-restarts=1");
    if (!follows_) plan.script = {"train.py", "--lr", "1"};
    plan.job_id = "job";
    for (const HostSpec& host : plan.hosts) plan.folders.push_back("job/" + host.name);
    machine_ = std::make_unique<HostsMachine>(plan, this, now_);
    machine_->Start();
    Asked();
  }
  // Returns what was asked for since the last call, but pings.
  std::vector<std::string> Asked() { return std::exchange(asked_, {}); }

  void OnConnected(size_t host) { machine_->OnConnected(host, now_); }
  void Report(size_t host, const HostReport& report) {
    machine_->OnReport(host, report, now_, absl::FromUnixSeconds(1000));
  }
  void Facts(size_t host, const std::string& torch = "2.11.0") {
    HostReport report;
    report.mutable_facts()->set_torch(torch);
    report.mutable_facts()->set_clock_nanos(int64_t{1000} * 1000000000);
    report.mutable_facts()->set_tmp_free_bytes(int64_t{1} << 40);
    report.mutable_facts()->set_shm_free_bytes(int64_t{1} << 40);
    Report(host, report);
  }
  void Listening(size_t host) {
    HostReport report;
    report.mutable_listening()->set_port(4000);
    for (const char* address : {"10.0.0.1", "10.1.0.1"}) {
      HostReport::Address* const added = report.mutable_listening()->add_addresses();
      added->set_address(address);
      added->set_interface("eth0");
    }
    Report(host, report);
  }
  void Reached(size_t host, const std::vector<std::string>& errors) {
    HostReport report;
    report.mutable_reached()->mutable_errors()->Add(errors.begin(), errors.end());
    Report(host, report);
  }
  void Following(size_t host) {
    HostReport report;
    report.mutable_following()->set_folder("/jobs");
    Report(host, report);
  }
  void Output(size_t host, const std::string& data, int64_t position, int64_t lost = 0) {
    HostReport report;
    report.mutable_output()->set_data(data);
    report.mutable_output()->set_position(position);
    report.mutable_output()->set_lost(lost);
    Report(host, report);
  }
  void End(size_t host, int code, const std::string& reason = "", int rank = 0) {
    HostReport report;
    report.mutable_ended()->set_code(code);
    if (!reason.empty()) {
      report.mutable_ended()->mutable_failure()->mutable_verdict()->set_reason(reason);
      report.mutable_ended()->mutable_failure()->mutable_verdict()->mutable_first_cause()->set_rank(rank);
    }
    Report(host, report);
  }
  void Fail(size_t host, const std::string& reason) {
    HostReport report;
    report.mutable_failed()->set_reason(reason);
    Report(host, report);
  }
  void Lose(size_t host) { machine_->OnLost(host, "its ssh connection was lost", now_); }
  // Time passes until something is asked for.
  std::vector<std::string> Wait() {
    while (asked_.empty()) machine_->OnDeadline(now_ = machine_->NextDeadline());
    return Asked();
  }
  // Two hosts whose launchers run.
  void RunTwo(HostsPlan plan = {}) {
    Begin("a,b:2", std::move(plan));
    for (const size_t host : {0, 1}) OnConnected(host);
    for (const size_t host : {0, 1}) Facts(host);
    Listening(0);
    Reached(1, {"", ""});
    for (const size_t host : {0, 1}) Following(host);
    Asked();
  }

  SteadyTime now_;
  bool follows_ = false;
  std::unique_ptr<HostsMachine> machine_;

 private:
  void Connect(size_t host) override { asked_.push_back(absl::StrCat(host, " connect")); }
  void Send(size_t host, const HostCommand& command) override {
    const std::string text = Text(command);
    if (!text.empty()) asked_.push_back(absl::StrCat(host, " ", text));
  }
  void Print(LogLevel, const std::string& text) override { asked_.push_back("print " + text); }
  void Show(bool, const std::string& text) override { asked_.push_back("show " + text); }
  void ShowOutput(size_t host, bool, std::optional<std::string> data) override {
    if (data) asked_.push_back(absl::StrCat(host, " output ", *data));
  }
  void Exit(int code, const std::string& summary) override {
    if (!summary.empty()) asked_.push_back("show " + summary);
    asked_.push_back(absl::StrCat("exit ", code));
  }

  static std::string Text(const HostCommand& command) {
    switch (command.kind_case()) {
      case HostCommand::kPrepare:
        return absl::StrCat("prepare ", command.prepare().job(), " ",
                            absl::StrJoin(command.prepare().positions(), " "));
      case HostCommand::kListen: return "listen";
      case HostCommand::kReach: return absl::StrCat("reach ", absl::StrJoin(command.reach().addresses(), " "));
      case HostCommand::kStart: return absl::StrCat("start ", absl::StrJoin(command.start().arguments(), " "));
      case HostCommand::kSignal: return absl::StrCat("signal ", command.signal().number());
      case HostCommand::kPing:
        return absl::StrCat(command.ping().hold_stdout() ? "hold stdout" : "",
                            command.ping().hold_stderr() ? "hold stderr" : "");
      case HostCommand::kGoodbye: return "goodbye";
      case HostCommand::KIND_NOT_SET: break;
    }
    return "nothing";
  }

  std::vector<std::string> asked_;
};

TEST_F(HostsMachineTest, TwoHosts_MeetAtAnAddressThatWorks) {
  Begin("a,b:2");
  OnConnected(1);
  OnConnected(0);
  EXPECT_THAT(Asked(), ElementsAre("1 prepare job/b 0 0", "0 prepare job/a 0 0"));
  Facts(0);
  EXPECT_THAT(Asked(), IsEmpty());  // waits for the other one
  Facts(1);
  EXPECT_THAT(Asked(), ElementsAre("0 listen"));
  Listening(0);
  EXPECT_THAT(Asked(), ElementsAre("1 reach 10.0.0.1 10.1.0.1"));
  Reached(1, {"no answer", ""});
  EXPECT_THAT(
      Asked(),
      ElementsAre("print the other hosts reach a at 10.1.0.1 (eth0), not at 10.0.0.1",
                  "0 start --max-restarts=1 --nnodes=2 --node-rank=0 --rdzv-endpoint=10.1.0.1:4000 --rdzv-id=job -- "
                  "train.py --lr 1",
                  "1 start --max-restarts=1 --nnodes=2 --node-rank=1 --rdzv-endpoint=10.1.0.1:4000 --rdzv-id=job "
                  "--nproc-per-node=2 -- train.py --lr 1"));
  Following(0);
  Following(1);
  Output(1, "text", 4);
  End(0, 0);
  EXPECT_THAT(Asked(), ElementsAre("1 output text"));
  End(1, 0);
  EXPECT_THAT(Asked(), ElementsAre("exit 0"));
}

TEST_F(HostsMachineTest, FailureOfTheJob_IsShownOnce) {
  RunTwo();
  End(0, 3, "rank 1 failed");
  EXPECT_THAT(Asked(), IsEmpty());
  End(1, 3, "rank 1 failed");
  EXPECT_THAT(Asked(), ElementsAre(HasSubstr("FAILED\nrank 1 failed\n"), "exit 3"));
}

TEST_F(HostsMachineTest, JobThatTheUserHasStopped_HasNoSummary_UnlessAWorkerFailed) {
  for (const int rank : {-1, 0}) {
    RunTwo();
    machine_->OnSignal(SIGTERM);
    Asked();
    End(0, 143, "stopped", rank);
    End(1, 143);
    EXPECT_EQ(Asked().size(), rank < 0 ? 1 : 2);
  }
}

TEST_F(HostsMachineTest, OneHost_NeedsNoAddress) {
  Begin("a:4");
  OnConnected(0);
  Asked();
  Facts(0);
  EXPECT_THAT(Asked(),
              ElementsAre("0 start --max-restarts=1 --nnodes=1 --rdzv-id=job --nproc-per-node=4 -- train.py --lr 1"));
}

TEST_F(HostsMachineTest, AllFaultsAreShown_BeforeItGivesUp) {
  Begin("a,b,c");
  OnConnected(0);
  Asked();
  machine_->OnLost(2, "no such host", now_);
  EXPECT_THAT(Asked(), ElementsAre("print c: no such host"));
  Fail(0, "there is no script train.py");
  Lose(0);  // says no more
  EXPECT_THAT(Asked(), ElementsAre("print a: there is no script train.py"));
  OnConnected(1);
  Asked();
  Facts(1);
  EXPECT_THAT(Asked(), ElementsAre("print no worker was started: 2 of 3 hosts can't take part", "exit 1"));
}

TEST_F(HostsMachineTest, ElasticJob_StartsWithoutAHost) {
  HostsPlan plan;
  plan.has_node_count = true;
  plan.flags = {"--nnodes=1:2"};
  Begin("a,b", plan);
  OnConnected(1);
  Lose(0);
  Asked();
  Facts(1);
  EXPECT_THAT(Asked(), ElementsAre("print starting on 1 of 2 hosts", "1 listen"));
  Listening(1);
  EXPECT_THAT(Asked(), ElementsAre("1 start --nnodes=1:2 --max-restarts=1 --node-rank=0 "
                                   "--rdzv-endpoint=10.0.0.1:4000 --rdzv-id=job -- train.py --lr 1"));
}

TEST_F(HostsMachineTest, OtherTorch_StopsTheStart) {
  Begin("a,b");
  for (const size_t host : {0, 1}) OnConnected(host);
  Facts(0);
  Asked();
  Facts(1, "2.10.0");
  EXPECT_THAT(Asked(), ElementsAre("show The hosts differ:\n  host   a       b\n  torch  2.11.0  2.10.0\n",
                                   "print b has torch 2.10.0, a has 2.11.0: install the same version on all hosts",
                                   "print no worker was started: the hosts differ", "exit 1"));
}

TEST_F(HostsMachineTest, NoCommonAddress_NamesEachHostsAttempts) {
  Begin("a,b,c");
  for (size_t i = 0; i < 3; ++i) {
    OnConnected(i);
    Facts(i);
  }
  Listening(0);
  Asked();
  Reached(1, {"no answer", ""});
  Reached(2, {"", "No route to host"});
  EXPECT_THAT(
      Asked(),
      ElementsAre("print b from port to port 4000 of a: 10.0.0.1 (eth0): no answer, 10.1.0.1 (eth0): works",
                  "print c from port to port 4000 of a: 10.0.0.1 (eth0): works, 10.1.0.1 (eth0): No route to host",
                  HasSubstr("no address of a can be reached from all other hosts"), "exit 1"));
}

TEST_F(HostsMachineTest, SilentHost_IsAFault) {
  for (const bool connected : {false, true}) {
    Begin("a");
    const SteadyTime begin = now_;
    if (connected) OnConnected(0);
    Asked();
    EXPECT_THAT(Wait(),
                ElementsAre(HasSubstr(connected ? "a: it does not answer for 60 s"
                                                : "a: ssh and the copy of the program make no progress for 60 s"),
                            HasSubstr("1 of 1 host can't take part"), "exit 1"));
    EXPECT_EQ(now_, begin + absl::Seconds(60));
  }
}

TEST_F(HostsMachineTest, Signals_StopKillAndLeave) {
  RunTwo();
  machine_->OnSignal(SIGINT);
  EXPECT_THAT(Asked(), ElementsAre("0 signal 2", "1 signal 2"));
  End(0, 130);
  machine_->OnSignal(SIGINT);
  EXPECT_THAT(Asked(), ElementsAre("1 signal 2"));
  machine_->OnSignal(SIGINT);
  EXPECT_THAT(Asked(), ElementsAre("exit 130"));
  Begin("a,b");
  machine_->OnSignal(SIGTERM);
  EXPECT_THAT(Asked(), ElementsAre("exit 143")) << "nothing was started";
}

TEST_F(HostsMachineTest, BlockedOutput_IsHeldBack) {
  RunTwo();
  for (const bool is_stderr : {false, true}) {
    const std::string name = is_stderr ? "stderr" : "stdout";
    machine_->OnOutputBlocked(is_stderr, true);
    EXPECT_THAT(Asked(), ElementsAre("0 hold " + name, "1 hold " + name));
    EXPECT_THAT(Wait(), ElementsAre("0 hold " + name, "1 hold " + name)) << "so do later pings";
    machine_->OnOutputBlocked(is_stderr, false);
    EXPECT_THAT(Asked(), IsEmpty());
  }
}

// ---- connections that are lost -------------------------------------------------------------------------------------

TEST_F(HostsMachineTest, LostConnection_IsMadeAgain_AndTheOutputContinues) {
  RunTwo();
  Output(1, "one", 3);
  Lose(1);
  EXPECT_THAT(Asked(), ElementsAre("1 output one", "print b: its ssh connection was lost; connecting again"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Wait(), ElementsAre("1 connect"));
    Lose(1);  // the attempts are not logged
  }
  EXPECT_THAT(Wait(), ElementsAre("1 connect"));
  OnConnected(1);
  EXPECT_THAT(Asked(), ElementsAre("1 prepare job/b 3 0"));
  Following(1);
  EXPECT_THAT(Asked(), ElementsAre("print b: connected again; its launcher has continued"));
  Output(1, "two", 5 << 20, 5 << 20);
  EXPECT_THAT(Asked(), ElementsAre(HasSubstr("print b: 5 MiB of output are missing"), "1 output two"));
  End(0, 0);
  End(1, 0);
  EXPECT_THAT(Asked(), ElementsAre("exit 0"));
}

TEST_F(HostsMachineTest, SilentHost_IsConnectedToAgain) {
  RunTwo();
  HostReport alive;
  alive.mutable_alive();
  now_ = now_ + absl::Seconds(30);
  Report(0, alive);
  EXPECT_THAT(Wait(), ElementsAre(HasSubstr("print b: it does not answer for 60 s")));
  EXPECT_THAT(Wait(), ElementsAre("1 connect"));
}

TEST_F(HostsMachineTest, HostWithoutLauncher_GetsOne_IfTheJobAllowsIt) {
  for (const bool may_restart : {true, false}) {
    HostsPlan plan;
    plan.may_restart = may_restart;
    RunTwo(plan);
    Lose(1);
    Asked();
    Wait();
    OnConnected(1);
    Asked();
    Facts(1);
    if (may_restart) {
      EXPECT_THAT(Asked(), ElementsAre("print b: connected again; starting a launcher there",
                                       "1 start --max-restarts=1 --nnodes=2 --node-rank=1 "
                                       "--rdzv-endpoint=10.0.0.1:4000 --rdzv-id=job --nproc-per-node=2 -- train.py "
                                       "--lr 1"));
      Fail(1, "no memory");
      EXPECT_THAT(Asked(), ElementsAre("print b: no memory"));
    } else {
      EXPECT_THAT(Asked(), ElementsAre("print b: its launcher is gone"));
    }
    EXPECT_THAT(Wait(), ElementsAre(HasSubstr("stopping it there"), "0 signal 15")) << "the job can't do without b";
    End(0, 143);
    EXPECT_THAT(Asked(), ElementsAre("exit 143"));
  }
}

TEST_F(HostsMachineTest, HostWhoseStartWasLost_GetsItsLauncher) {
  Begin("a");
  OnConnected(0);
  Facts(0);
  Lose(0);
  Asked();
  EXPECT_THAT(Wait(), ElementsAre("0 connect"));
  OnConnected(0);
  Asked();
  Facts(0);
  EXPECT_THAT(Asked(), ElementsAre("print a: connected again; starting a launcher there", HasSubstr("0 start ")));
}

TEST_F(HostsMachineTest, HostThatIsNotReadyYet_SaysWhyOnce) {
  RunTwo();
  Lose(1);
  Asked();
  for (int i = 0; i < 3; ++i) {
    Wait();
    OnConnected(1);
    Asked();
    Fail(1, "there is no script train.py");
    if (i == 0) {
      EXPECT_THAT(Asked(), ElementsAre("print b: there is no script train.py; connecting again"));
    } else {
      EXPECT_THAT(Asked(), IsEmpty());
    }
  }
}

TEST_F(HostsMachineTest, EndOfTheJob_OrASignal_EndsTheAttempts) {
  RunTwo();
  Lose(1);
  Asked();
  End(0, 5);
  EXPECT_THAT(Asked(), ElementsAre("exit 5"));
  RunTwo();
  Lose(1);
  Asked();
  machine_->OnSignal(SIGINT);
  EXPECT_THAT(Asked(), ElementsAre("0 signal 2"));
  End(0, 130);
  EXPECT_THAT(Asked(), ElementsAre("exit 130"));
}

TEST_F(HostsMachineTest, AllLost_NoLauncherIsStarted_UntilOneIsFound) {
  for (const bool found : {true, false}) {
    HostsPlan plan;
    plan.may_restart = true;
    RunTwo(plan);
    for (const size_t host : {0, 1}) Lose(host);
    Asked();
    EXPECT_THAT(Wait(), ElementsAre("0 connect", "1 connect"));
    for (const size_t host : {0, 1}) OnConnected(host);
    Asked();
    Facts(1);
    EXPECT_THAT(Asked(), IsEmpty());
    if (!found) {
      Facts(0);
      EXPECT_THAT(Asked(), ElementsAre("print no host has a launcher of the job any more", "exit 1"));
      continue;
    }
    Following(0);
    EXPECT_THAT(Asked(), ElementsAre(HasSubstr("a: connected again; its launcher has continued")));
    EXPECT_THAT(Wait(), ElementsAre("1 connect"));
    OnConnected(1);
    Asked();
    Facts(1);
    EXPECT_THAT(Asked(), ElementsAre("print b: connected again; starting a launcher there", HasSubstr("1 start ")));
  }
}

TEST_F(HostsMachineTest, AllLost_ForLong) {
  RunTwo();
  std::vector<std::string> asked;
  do {
    for (const size_t host : {0, 1}) Lose(host);
    Asked();
    asked = Wait();
  } while (asked.back() != "exit 1");
  EXPECT_THAT(asked, ElementsAre(HasSubstr("a: it could not be reached for 2m"), HasSubstr("b: it could"), "exit 1"));
  EXPECT_EQ(now_, SteadyTime() + absl::Minutes(2));
}

// ---- detached jobs -------------------------------------------------------------------------------------------------

TEST_F(HostsMachineTest, Detached_TellsHowToComeBack) {
  HostsPlan plan;
  plan.detach = true;
  plan.token_file = "/home/me/token";
  Begin("a,b", plan);
  for (const size_t host : {0, 1}) OnConnected(host);
  for (const size_t host : {0, 1}) Facts(host);
  Listening(0);
  Reached(1, {""});
  Following(0);
  Asked();
  Following(1);
  EXPECT_THAT(Asked(), ElementsAre("show Job job runs on 2 hosts. Output:\n  a:/jobs\n  b:/jobs\n"
                                   "To follow it: ddprun --hosts=a,b --rdzv-id=job\n"
                                   "To see it: ddprunctl --server=10.0.0.1:4000 --token-file=/home/me/token show job\n"
                                   "To end it: ddprunctl --server=10.0.0.1:4000 --token-file=/home/me/token stop job\n",
                                   "exit 0"));
}

TEST_F(HostsMachineTest, Detached_HostThatIsLostBeforeItsLauncherIsSeen_IsConnectedToAgain) {
  for (const bool started : {true, false}) {
    HostsPlan plan;
    plan.detach = true;
    Begin("a,b", plan);
    for (const size_t host : {0, 1}) OnConnected(host);
    for (const size_t host : {0, 1}) Facts(host);
    Listening(0);
    Reached(1, {""});
    Following(0);
    Asked();
    Lose(1);
    EXPECT_THAT(Asked(), ElementsAre("print b: its ssh connection was lost; connecting again"));
    EXPECT_THAT(Wait(), ElementsAre("1 connect"));
    OnConnected(1);
    Asked();
    if (!started) {
      Facts(1);
      EXPECT_THAT(Asked(), ElementsAre("print b: connected again; starting a launcher there", HasSubstr("1 start ")));
    }
    Following(1);
    const std::vector<std::string> asked = Asked();
    ASSERT_GE(asked.size(), 2u);
    EXPECT_THAT(asked[asked.size() - 2], HasSubstr("show Job job runs on 2 hosts."));
    EXPECT_EQ(asked.back(), "exit 0");
  }
}

TEST_F(HostsMachineTest, Detached_HostThatStaysLost_IsNamed_AndTheOthersAreShown) {
  HostsPlan plan;
  plan.detach = true;
  Begin("a,b", plan);
  for (const size_t host : {0, 1}) OnConnected(host);
  for (const size_t host : {0, 1}) Facts(host);
  Listening(0);
  Reached(1, {""});
  Following(0);
  std::vector<std::string> asked;
  do {
    Lose(1);
    Asked();
    asked = Wait();
  } while (asked.back() == "1 connect");
  EXPECT_THAT(asked,
              ElementsAre(HasSubstr("b: it could not be reached"), HasSubstr("show Job job runs on 1 host"), "exit 1"));
}

TEST_F(HostsMachineTest, Follower_ShowsTheJob_AndLeavesItAlone) {
  follows_ = true;
  for (const bool interrupted : {true, false}) {
    Begin("a,b");
    for (const size_t host : {0, 1}) OnConnected(host);
    Following(0);
    Output(0, "x", 1);
    Following(1);
    Asked();
    if (interrupted) {
      machine_->OnSignal(SIGINT);
      EXPECT_THAT(Asked(), ElementsAre("exit 130"));
      continue;
    }
    End(0, 4);
    End(1, 4);
    EXPECT_THAT(Asked(), ElementsAre("exit 4"));
  }
  Begin("a");
  OnConnected(0);
  Asked();
  Fail(0, "it has no job with this --rdzv-id");
  EXPECT_THAT(Asked(), ElementsAre("print a: it has no job with this --rdzv-id", "exit 1"));
}

}  // namespace
}  // namespace ddprun::launcher
