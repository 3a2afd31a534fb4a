#include "launcher/hosts/hosts_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

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
class HostsMachineTest : public ::testing::Test {
 protected:
  void Begin(const std::string& hosts, HostsPlan plan = {}) {
    plan.hosts = *ParseHosts(hosts);
    if (plan.min_nodes == 1 && !plan.has_node_count) plan.min_nodes = static_cast<int>(plan.hosts.size());
    plan.flags.push_back("--max-restarts=1");
    plan.script = {"train.py", "--lr", "1"};
    plan.job_id = "job";
    machine_ = std::make_unique<HostsMachine>(plan, now_);
  }
  // Returns what was asked for since the last call.
  std::vector<std::string> Asked() { return std::exchange(asked_, {}); }

  void Connect(size_t host) {
    Run([&](HostsEffects* e) { machine_->OnConnected(host, now_, e); });
  }
  void Report(size_t host, const HostReport& report) {
    Run([&](HostsEffects* e) { machine_->OnReport(host, report, now_, absl::FromUnixSeconds(1000), e); });
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
  void Output(size_t host, const std::string& data) {
    HostReport report;
    report.mutable_output()->set_data(data);
    Report(host, report);
  }
  void End(size_t host, int code, const std::string& reason = "") {
    HostReport report;
    report.mutable_ended()->set_code(code);
    if (!reason.empty()) report.mutable_ended()->mutable_failure()->mutable_verdict()->set_reason(reason);
    Report(host, report);
  }
  void Lose(size_t host, const std::string& reason) {
    Run([&](HostsEffects* e) { machine_->OnLost(host, reason, now_, e); });
  }
  void Signal(int number) {
    Run([&](HostsEffects* e) { machine_->OnSignal(number, now_, e); });
  }
  void PassUntilDeadline() {
    now_ = machine_->NextDeadline();
    Run([&](HostsEffects* e) { machine_->OnDeadline(now_, e); });
  }
  // Two hosts whose launchers run.
  void RunTwo(HostsPlan plan = {}) {
    Begin("a,b:2", std::move(plan));
    Connect(0);
    Connect(1);
    Facts(0);
    Facts(1);
    Listening(0);
    Reached(1, {"", ""});
    Asked();
  }

  SteadyTime now_;

 private:
  template <typename Call>
  void Run(Call call) {
    HostsEffects effects;
    call(&effects);
    for (const HostsEffect& effect : effects) {
      if (const auto* send = std::get_if<hosts_effect::Send>(&effect)) asked_.push_back(Text(*send));
      if (const auto* print = std::get_if<hosts_effect::Print>(&effect)) asked_.push_back("print " + print->text);
      if (const auto* connect = std::get_if<hosts_effect::Connect>(&effect)) {
        asked_.push_back(absl::StrCat(connect->host, " connect"));
      }
      if (const auto* show = std::get_if<hosts_effect::Show>(&effect)) asked_.push_back("show " + show->text);
      if (const auto* exit = std::get_if<hosts_effect::Exit>(&effect))
        asked_.push_back(absl::StrCat("exit ", exit->code));
    }
  }
  static std::string Text(const hosts_effect::Send& send) {
    const HostCommand& command = send.command;
    switch (command.kind_case()) {
      case HostCommand::kPrepare: return absl::StrCat(send.host, " prepare");
      case HostCommand::kListen: return absl::StrCat(send.host, " listen");
      case HostCommand::kReach:
        return absl::StrCat(send.host, " reach ", absl::StrJoin(command.reach().addresses(), " "));
      case HostCommand::kStart:
        return absl::StrCat(send.host, " start ", absl::StrJoin(command.start().arguments(), " "));
      case HostCommand::kSignal: return absl::StrCat(send.host, " signal ", command.signal().number());
      case HostCommand::kPing: return absl::StrCat(send.host, " ping");
      case HostCommand::KIND_NOT_SET: break;
    }
    return "nothing";
  }

  std::unique_ptr<HostsMachine> machine_;
  std::vector<std::string> asked_;
};

TEST_F(HostsMachineTest, TwoHosts_MeetAtAnAddressThatWorks) {
  Begin("a,b:2");
  Connect(1);
  Connect(0);
  EXPECT_THAT(Asked(), ElementsAre("1 prepare", "0 prepare"));
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
  Output(0, "one\ntw");
  Output(1, "three\n");
  Output(0, "o\n");
  EXPECT_THAT(Asked(), ElementsAre("show [a] one\n", "show [b] three\n", "show [a] two\n"));
  Output(0, "no newline");
  End(0, 0);
  EXPECT_THAT(Asked(), ElementsAre("show [a] no newline\n"));
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
    Signal(SIGTERM);
    Asked();
    HostReport report;
    report.mutable_ended()->set_code(143);
    report.mutable_ended()->mutable_failure()->mutable_verdict()->mutable_first_cause()->set_rank(rank);
    Report(0, report);
    End(1, 143);
    EXPECT_EQ(Asked().size(), rank < 0 ? 1 : 2);
  }
}

TEST_F(HostsMachineTest, OneHost_NeedsNoAddress) {
  Begin("a:4");
  Connect(0);
  Asked();
  Facts(0);
  EXPECT_THAT(Asked(),
              ElementsAre("0 start --max-restarts=1 --nnodes=1 --rdzv-id=job --nproc-per-node=4 -- train.py --lr 1"));
}

TEST_F(HostsMachineTest, EndpointOfTheUser_IsUsed) {
  HostsPlan plan;
  plan.has_endpoint = true;
  Begin("a,b", plan);
  Connect(0);
  Connect(1);
  Facts(0);
  Asked();
  Facts(1);
  EXPECT_THAT(Asked().front(), HasSubstr("0 start --max-restarts=1 --nnodes=2 --node-rank=0 --rdzv-id=job --"));
}

TEST_F(HostsMachineTest, AllFaultsAreShown_BeforeItGivesUp) {
  Begin("a,b,c");
  Connect(0);
  Asked();
  Lose(2, "no such host");
  EXPECT_THAT(Asked(), ElementsAre("print c: no such host"));
  HostReport report;
  report.mutable_failed()->set_reason("there is no script train.py");
  Report(0, report);
  Lose(0, "the agent has ended");  // says no more
  EXPECT_THAT(Asked(), ElementsAre("print a: there is no script train.py"));
  Connect(1);
  Facts(1);
  EXPECT_THAT(Asked(), ElementsAre("1 prepare", "print no worker was started: 2 of 3 hosts can't take part", "exit 1"));
}

TEST_F(HostsMachineTest, ElasticJob_StartsWithoutAHost) {
  HostsPlan plan;
  plan.has_node_count = true;
  plan.min_nodes = 1;
  plan.flags = {"--nnodes=1:2"};
  Begin("a,b", plan);
  Connect(1);
  Lose(0, "no such host");
  Asked();
  Facts(1);
  EXPECT_THAT(Asked(), ElementsAre("print starting on 1 of 2 hosts", "1 listen"));
  Listening(1);
  EXPECT_THAT(Asked(), ElementsAre("1 start --nnodes=1:2 --max-restarts=1 --node-rank=0 "
                                   "--rdzv-endpoint=10.0.0.1:4000 --rdzv-id=job -- train.py --lr 1"));
}

TEST_F(HostsMachineTest, OtherTorch_StopsTheStart) {
  Begin("a,b");
  Connect(0);
  Connect(1);
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
    Connect(i);
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

TEST_F(HostsMachineTest, HostThatIsSilentInTheStart_IsAFault) {
  Begin("a");
  PassUntilDeadline();  // a ping, of which it has no need yet
  EXPECT_THAT(Asked(), IsEmpty());
  std::vector<std::string> asked;
  while (asked.empty()) {
    PassUntilDeadline();
    asked = Asked();
  }
  EXPECT_EQ(now_, SteadyTime() + absl::Seconds(60));
  EXPECT_THAT(asked, ElementsAre(HasSubstr("print a: ssh and the copy of the program make no progress for 60 s"),
                                 HasSubstr("1 of 1 host can't take part"), "exit 1"));
}

TEST_F(HostsMachineTest, Signals_StopKillAndLeave) {
  RunTwo();
  Signal(SIGINT);
  EXPECT_THAT(Asked(), ElementsAre("0 signal 2", "1 signal 2"));
  End(0, 130);
  Asked();
  Signal(SIGINT);
  EXPECT_THAT(Asked(), ElementsAre("1 signal 2"));
  Signal(SIGINT);
  EXPECT_THAT(Asked(), ElementsAre("exit 130"));
}

TEST_F(HostsMachineTest, SignalDuringTheStart_Ends) {
  Begin("a,b");
  Connect(0);
  Asked();
  Signal(SIGTERM);
  EXPECT_THAT(Asked(), ElementsAre("exit 143"));
}

TEST_F(HostsMachineTest, LostConnection_TheRestIsStopped_IfItDoesNotEnd) {
  RunTwo();
  Lose(1, "its ssh connection was lost");
  EXPECT_THAT(Asked(), ElementsAre("print b: its ssh connection was lost"));
  std::vector<std::string> asked;
  while (asked.size() < 2) {
    PassUntilDeadline();
    asked = Asked();
  }
  EXPECT_EQ(now_, SteadyTime() + absl::Seconds(45));
  EXPECT_THAT(asked, ElementsAre("0 ping", HasSubstr("stopping it there"), "0 signal 15"));
  End(0, 143);
  EXPECT_THAT(Asked(), ElementsAre("exit 143"));
}

TEST_F(HostsMachineTest, LostConnection_OfAnElasticJob_ItGoesOn) {
  HostsPlan plan;
  plan.has_node_count = true;
  RunTwo(plan);
  Lose(1, "its ssh connection was lost");
  for (int i = 0; i < 100; ++i) PassUntilDeadline();
  for (const std::string& asked : Asked()) EXPECT_THAT(asked, ::testing::AnyOf(HasSubstr("b: its ssh"), "0 ping"));
  End(0, 0);
  EXPECT_THAT(Asked(), ElementsAre("exit 0"));
}

// ---- hosts that are lost and come back -----------------------------------------------------------------------------

class ReconnectTest : public HostsMachineTest {
 protected:
  // Two hosts whose launchers run, and the second is lost.
  void LoseOne(HostsPlan plan = {}) {
    plan.may_reconnect = true;
    RunTwo(std::move(plan));
    Lose(1, "its ssh connection was lost");
    EXPECT_THAT(Asked(), ElementsAre("print b: its ssh connection was lost; connecting again"));
  }
  // Returns what was asked for, but pings.
  std::vector<std::string> PassUntilAsked() {
    std::vector<std::string> asked;
    while (asked.empty()) {
      PassUntilDeadline();
      for (std::string& text : Asked()) {
        if (text != "0 ping" && text != "1 ping") asked.push_back(std::move(text));
      }
    }
    return asked;
  }
  void Attach(size_t host) {
    HostReport report;
    report.mutable_attached();
    Report(host, report);
  }
};

TEST_F(ReconnectTest, LauncherThatHasContinued_IsFound) {
  LoseOne();
  EXPECT_THAT(PassUntilAsked(), ElementsAre("1 connect"));
  EXPECT_EQ(now_, SteadyTime() + absl::Seconds(1));
  Connect(1);
  EXPECT_THAT(Asked(), ElementsAre("1 prepare"));
  Attach(1);
  EXPECT_THAT(Asked(), ElementsAre(HasSubstr("print b: connected again; its launcher has continued")));
  Output(1, "x\n");
  End(0, 0);
  End(1, 0);
  EXPECT_THAT(Asked(), ElementsAre("show [b] x\n", "exit 0"));
}

TEST_F(ReconnectTest, HostWithoutLauncher_GetsOne_InItsPlace) {
  LoseOne();
  PassUntilAsked();
  Connect(1);
  Asked();
  Facts(1);
  EXPECT_THAT(Asked(), ElementsAre("print b: connected again; starting a launcher there",
                                   "1 start --max-restarts=1 --nnodes=2 --node-rank=1 --rdzv-endpoint=10.0.0.1:4000 "
                                   "--rdzv-id=job --nproc-per-node=2 -- train.py --lr 1"));
  Signal(SIGINT);
  EXPECT_THAT(Asked(), ElementsAre("0 signal 2", "1 signal 2"));
}

TEST_F(ReconnectTest, Attempts_BecomeRare_AndAreNotLogged) {
  LoseOne();
  std::vector<int> gaps;
  for (int i = 0; i < 9; ++i) {
    const SteadyTime before = now_;
    EXPECT_THAT(PassUntilAsked(), ElementsAre("1 connect"));
    gaps.push_back(absl::ToInt64Seconds(now_ - before));
    if (i % 2 == 0) {
      Connect(1);
      EXPECT_THAT(Asked(), ElementsAre("1 prepare"));
    }
    Lose(1, "Connection refused");
  }
  EXPECT_THAT(gaps, ElementsAre(1, 2, 4, 8, 16, 32, 60, 60, 60));
  // A hanging attempt, too, is given up.
  PassUntilAsked();
  EXPECT_THAT(PassUntilAsked(), ElementsAre("1 connect"));
}

TEST_F(ReconnectTest, ConnectionThatBreaksAgainAndAgain_IsTriedRarely) {
  LoseOne();
  std::vector<int> gaps;
  for (int i = 0; i < 8; ++i) {
    const SteadyTime before = now_;
    EXPECT_THAT(PassUntilAsked(), ElementsAre("1 connect"));
    gaps.push_back(absl::ToInt64Seconds(now_ - before));
    Connect(1);
    Attach(1);
    if (i == 6) now_ = now_ + absl::Minutes(2);
    Lose(1, "its ssh connection was lost");
    Asked();
  }
  EXPECT_THAT(gaps, ElementsAre(1, 2, 4, 8, 16, 32, 60, 1));
}

TEST_F(ReconnectTest, LauncherThatCanNotStart_IsNotTriedAgain) {
  LoseOne();
  PassUntilAsked();
  Connect(1);
  Facts(1);
  Asked();
  HostReport report;
  report.mutable_failed()->set_reason("no memory");
  Report(1, report);
  EXPECT_THAT(Asked(), ElementsAre("print b: no memory"));
  EXPECT_THAT(PassUntilAsked(), ElementsAre(HasSubstr("stopping it there"), "0 signal 15"));
}

TEST_F(ReconnectTest, HostThatIsNotReadyYet_SaysWhyOnce) {
  LoseOne();
  HostReport report;
  report.mutable_failed()->set_reason("there is no script train.py");
  for (int i = 0; i < 3; ++i) {
    PassUntilAsked();
    Connect(1);
    Asked();
    Report(1, report);
    if (i == 0) {
      EXPECT_THAT(Asked(), ElementsAre("print b: there is no script train.py; trying again"));
    } else {
      EXPECT_THAT(Asked(), IsEmpty());
    }
  }
}

TEST_F(ReconnectTest, EndOfTheJob_EndsTheAttempts) {
  LoseOne();
  End(0, 5);
  EXPECT_THAT(Asked(), ElementsAre("exit 5"));
}

TEST_F(ReconnectTest, EndOfTheJob_WhileTheHostReturns) {
  LoseOne();
  PassUntilAsked();
  Connect(1);
  Asked();
  End(0, 0);
  EXPECT_THAT(Asked(), ElementsAre("exit 0"));
}

TEST_F(ReconnectTest, Signal_EndsTheAttempts) {
  LoseOne();
  Signal(SIGINT);
  EXPECT_THAT(Asked(), ElementsAre("0 signal 2"));
  PassUntilDeadline();
  EXPECT_THAT(Asked(), ElementsAre("0 ping"));
  End(0, 130);
  EXPECT_THAT(Asked(), ElementsAre("exit 130"));
}

TEST_F(ReconnectTest, HostWithOtherVersions_StaysOut) {
  HostsPlan plan;
  plan.has_node_count = true;  // 1:2
  LoseOne(plan);
  PassUntilAsked();
  Connect(1);
  Asked();
  Facts(1, "2.10.0");
  EXPECT_THAT(Asked(), ElementsAre(HasSubstr("print b has torch 2.10.0, a has 2.11.0")));
  for (int i = 0; i < 100; ++i) PassUntilDeadline();
  for (const std::string& asked : Asked()) EXPECT_EQ(asked, "0 ping");
}

TEST_F(ReconnectTest, AllLost_NoLauncherIsStarted_UntilOneIsFound) {
  LoseOne();
  Lose(0, "its ssh connection was lost");
  Asked();
  EXPECT_THAT(PassUntilAsked(), ::testing::UnorderedElementsAre("1 connect", "0 connect"));
  Connect(1);
  Asked();
  Facts(1);
  EXPECT_THAT(Asked(), IsEmpty());
  Connect(0);
  Asked();
  Attach(0);
  EXPECT_THAT(Asked(), ElementsAre(HasSubstr("a: connected again; its launcher has continued")));
  EXPECT_THAT(PassUntilAsked(), ElementsAre("1 connect"));
  Connect(1);
  Asked();
  Facts(1);
  EXPECT_THAT(Asked(), ElementsAre("print b: connected again; starting a launcher there", HasSubstr("1 start ")));
}

TEST_F(ReconnectTest, AllLost_AndNoneHasALauncher) {
  LoseOne();
  Lose(0, "its ssh connection was lost");
  PassUntilAsked();
  for (const size_t host : {0, 1}) Connect(host);
  Asked();
  Facts(0);
  EXPECT_THAT(Asked(), IsEmpty());
  Facts(1);
  EXPECT_THAT(Asked(), ElementsAre("print no host has a launcher of the job any more", "exit 1"));
}

TEST_F(ReconnectTest, AllLost_ForLong) {
  LoseOne();
  Lose(0, "its ssh connection was lost");
  std::vector<std::string> asked;
  while (true) {
    PassUntilDeadline();
    asked = Asked();
    if (!asked.empty() && asked.back() == "exit 1") break;
    for (const size_t host : {0, 1}) Lose(host, "No route to host");
  }
  EXPECT_THAT(asked.front(), HasSubstr("no host could be reached for 2m"));
  EXPECT_EQ(now_, SteadyTime() + absl::Minutes(2));
}

TEST_F(HostsMachineTest, Detached_TellsHowToComeBack) {
  HostsPlan plan;
  plan.detach = true;
  plan.token_file = "/home/me/token";
  RunTwo(plan);
  HostReport report;
  report.mutable_detached()->set_output("/home/me/a.log");
  Report(0, report);
  EXPECT_THAT(Asked(), IsEmpty());
  Report(1, report);
  EXPECT_THAT(Asked(), ElementsAre("show Job job runs on 2 hosts. Output:\n  a:/home/me/a.log\n  b:/home/me/a.log\n"
                                   "To see it: ddprunctl --server=10.0.0.1:4000 --token-file=/home/me/token show job\n"
                                   "To end it: ddprunctl --server=10.0.0.1:4000 --token-file=/home/me/token stop job\n",
                                   "exit 0"));
}

TEST_F(HostsMachineTest, LineWithoutEnd_IsShownInPieces) {
  RunTwo();
  Output(0, std::string(100000, 'x'));
  const std::vector<std::string> asked = Asked();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_GT(asked[0].size(), 65000u);
  EXPECT_EQ(asked[0].back(), '\n');
}

}  // namespace
}  // namespace ddprun::launcher
