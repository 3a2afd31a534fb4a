// ddprunctl and several rendezvousd on a real etcd: commands reach the leader through any server, and the leader knows
// the history of the servers before it.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/launch.h"
#include "tests/rendezvous/ha/etcd_cluster.h"
#include "tests/rendezvous/ha/servers.h"

namespace ddprun::testing {
namespace {

class ControlTest : public ServersTest {
 protected:
  ControlTest() : ServersTest(2) {}

  // Server 0 leads, 1 follows.
  void SetUp() override {
    ServersTest::SetUp();
    if (servers_ != nullptr) servers_->StartAll();
  }

  std::string Address(int server) const { return servers_->Address(server); }
};

TEST_F(ControlTest, FollowerIsNamed_LeaderIsCommanded) {
  Launcher node({"--nnodes=1", "--rdzv-endpoint=" + Address(0) + "," + Address(1), "--rdzv-id=job", "--no-python", "sh",
                 "-c", std::string(kSayRank) + "exec sleep 1000"});
  ASSERT_TRUE(node.WaitForOut("round=1")) << node.Err();
  const std::string nobody = absl::StrCat("127.0.0.1:", FreePort());
  for (const std::string& servers :
       {Address(1), Address(0) + "," + Address(1), Address(1) + "," + Address(0), nobody + "," + Address(1)}) {
    const Answer jobs = Ctl(servers, {"jobs"});
    EXPECT_EQ(jobs.exit, 0) << jobs.err;
    EXPECT_TRUE(absl::StrContains(jobs.out, "running")) << servers << "\n" << jobs.out;
    EXPECT_EQ(Ctl(servers, {"drain", "gone"}).exit, 0) << servers;
    EXPECT_EQ(Ctl(servers, {"undrain", "gone"}).exit, 0) << servers;
    EXPECT_EQ(Ctl(servers, {"show", "nix"}).exit, 3) << servers;
  }
  const Answer events = Ctl(Address(1), {"events"});
  EXPECT_EQ(events.exit, 0) << events.err;
  EXPECT_EQ(Count(events.out, "host.drained"), 4) << events.out;
  EXPECT_THAT(events.out, HasSubstr("round.assigned"));
  EXPECT_EQ(Ctl(Address(1), {"stop", "job"}).exit, 0);
  EXPECT_EQ(node.Wait(), 143) << node.Err();
}

TEST_F(ControlTest, LeaderIsReplaced_ItsCommandsHold) {
  EXPECT_EQ(Ctl(Address(1), {"drain", "broken"}).exit, 0);
  Process watch({"ddprunctl/ddprunctl", "--server=" + Address(1), "events", "--follow"});
  ASSERT_TRUE(watch.WaitForOut("host.drained")) << watch.Err();
  servers_->Kill(0);
  ASSERT_TRUE(servers_->AwaitLead(1)) << (*servers_)[1].Err();
  const std::string all = Address(0) + "," + Address(1);
  Answer hosts;
  ASSERT_TRUE(Eventually([&] {
    hosts = Ctl(all, {"hosts"});
    return hosts.exit == 0;
  })) << hosts.err;
  EXPECT_THAT(hosts.out, HasSubstr("broken"));
  const Answer events = Ctl(all, {"events"});
  EXPECT_EQ(Count(events.out, "host.drained"), 1) << "events outlive the leader\n" << events.out;
  EXPECT_EQ(Ctl(all, {"undrain", "broken"}).exit, 0);
  EXPECT_TRUE(watch.WaitForOut("host.undrained")) << watch.Err();
  EXPECT_EQ(Count(watch.Out(), "host.drained"), 1) << watch.Out();

  // Without a leader: one line that names all servers that were asked.
  servers_->Kill(1);
  const Answer none = Ctl(all, {"stop", "job"});
  EXPECT_EQ(none.exit, 1);
  EXPECT_EQ(Lines(none.err), 1) << none.err;
  EXPECT_TRUE(absl::StrContains(none.err, Address(0)) && absl::StrContains(none.err, Address(1))) << none.err;
}

// Reports steps. Each of its first two attempts fails once the file with its number exists; the second one repeats
// steps of the first one.
constexpr char kTrain[] = R"(
import os, sys, time
from ddprun import worker

folder, attempt = sys.argv[1], int(os.environ["TORCHELASTIC_RESTART_COUNT"])
step = (100, 90, 10000)[attempt]
while not os.path.exists(f"{folder}/end"):
    worker.report_progress(step)
    if os.environ["RANK"] == "1" and os.path.exists(f"{folder}/fail{attempt}"): sys.exit(3)
    time.sleep(0.01)
    step += 1
)";

// A job of two nodes that trains, with three servers.
class HistoryTest : public ServersTest {
 protected:
  HistoryTest() : ServersTest(3) {}

  void SetUp() override {
    ServersTest::SetUp();
    if (servers_ == nullptr) return;
    servers_->StartAll();
    std::ofstream(dir_.File("train.py")) << kTrain;
    for (auto& node : nodes_) {
      node = std::make_unique<Launcher>(
          std::vector<std::string>{"--nnodes=2", "--rdzv-endpoint=" + servers_->Endpoints(), "--rdzv-id=job",
                                   "--max-restarts=2", "--no-python", "python3", dir_.File("train.py"), dir_.path()},
          std::map<std::string, std::string>{{"PYTHONPATH", std::filesystem::absolute("packaging/wheel")}});
    }
  }

  std::vector<std::string> CtlCommand(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"ddprunctl/ddprunctl", "--server=" + servers_->Endpoints(), "--output=json"});
    return arguments;
  }
  // Output of ddprunctl; empty before the job exists and while no server leads.
  std::string Ctl(std::vector<std::string> arguments) const {
    Process ctl(CtlCommand(std::move(arguments)));
    ctl.Wait();
    return ctl.Out();
  }
  nlohmann::json Show() const { return nlohmann::json::parse(Ctl({"show", "job"}), nullptr, false); }
  // Waits until the job is in this round, with more than `seconds` of `what`.
  bool Await(int round, const char* what, double seconds) const {
    return Eventually([&] {
      const nlohmann::json job = Show();
      return job.is_object() && job["round"] == round && job["goodput"][what] > seconds;
    });
  }
  // Number of times that each event occurs, without its number.
  static std::map<std::string, int> Counts(const std::string& lines) {
    std::map<std::string, int> counts;
    for (const absl::string_view line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
      nlohmann::json event = nlohmann::json::parse(line);
      event.erase("number");
      ++counts[event.dump()];
    }
    return counts;
  }

  std::unique_ptr<Launcher> nodes_[2];
};

TEST_F(HistoryTest, LeadersAreReplaced_GoodputGoesOnAndEachEventIsToldOnce) {
  Process all(CtlCommand({"events", "--follow"}));
  std::unique_ptr<Process> later;
  std::string first;                    // events that it must not report
  std::map<std::string, double> least;  // minimum of goodput's seconds
  for (int round = 1; round <= 3; ++round) {
    // Launchers report steps once a second; the time of a step follows from two reports.
    ASSERT_TRUE(round == 2 ? Await(2, "lost", 0) : Await(round, "training", round == 1 ? 1.1 : least["training"]));
    const nlohmann::json goodput = Show()["goodput"];
    for (const char* what : {"waiting", "starting", "training", "lost"}) least[what] = goodput[what];
    // The third round's record lacks the end of its start, which later counts as training.
    if (round < 3) least["re_forming"] = goodput["re_forming"];
    if (round == 1) {
      first = Ctl({"events"});
      later =
          std::make_unique<Process>(CtlCommand({"events", "--follow", absl::StrCat("--after=", Lines(first)), "job"}));
    }
    if (round < 3) Touch(dir_.File(absl::StrCat("fail", round - 1)));
  }
  EXPECT_GT(least["re_forming"], 0);
  ASSERT_TRUE(later->WaitForOut("round.stopped")) << later->Err();
  const std::string before = Ctl({"events"});
  int leader = 0;
  for (const int signal : {SIGKILL, SIGTERM}) {
    (*servers_)[leader].Signal(signal);
    (*servers_)[leader].Wait();
    leader = servers_->AwaitLeaderAfter(leader);
    ASSERT_TRUE(Await(3, "training", least["training"])) << nodes_[0]->Err();
    const nlohmann::json job = Show();
    double sum = 0;
    for (const auto& [what, seconds] : least) {
      EXPECT_GE(job["goodput"][what], seconds) << what << " in " << job;
      sum += job["goodput"][what].get<double>();
    }
    EXPECT_NEAR(sum, job["age"].get<double>(), 0.1) << job;
    std::map<std::string, int> after = Counts(Ctl({"events"}));
    for (const auto& [event, count] : Counts(before)) EXPECT_EQ(after[event], 1) << event;
  }
  Touch(dir_.File("end"));
  for (const auto& node : nodes_) EXPECT_EQ(node->Wait(), 0) << node->Err();
  const std::map<std::string, int> not_later = Counts(first);
  for (Process* watch : {&all, later.get()}) {
    ASSERT_TRUE(watch->WaitForOut("job.finished")) << watch->Err();
    std::map<std::string, int> told = Counts(watch->Out());
    for (const auto& [event, count] : told) EXPECT_EQ(count, 1) << event;
    for (const auto& [event, count] : Counts(before)) {
      const bool wanted = watch == &all || !not_later.contains(event);
      EXPECT_EQ(told[event], wanted ? 1 : 0) << event;
    }
  }
}

}  // namespace
}  // namespace ddprun::testing
