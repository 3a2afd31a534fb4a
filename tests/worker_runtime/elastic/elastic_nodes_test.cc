// Elastic trainings on several nodes (launchers) with a rendezvous server. Nodes and server are killed; nodes are also
// stopped, terminated and added. Gates (see elastic_program) hold the training where a test needs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"
#include "tests/worker_runtime/elastic/elastic_output.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kSamples = 50;

class ElasticNodesTest : public ::testing::Test {
 protected:
  void StartServer(const std::vector<std::string>& more = {}) {
    std::vector<std::string> command = {"rendezvous/daemon/rendezvousd", absl::StrCat("--listen=127.0.0.1:", port_),
                                        "--log-level=INFO"};
    command.insert(command.end(), more.begin(), more.end());
    server_ = std::make_unique<Process>(command);
    ASSERT_TRUE(server_->WaitForOut("listening")) << server_->Err();
  }

  // Adds a launcher to the job; `program`: more flags of elastic_program.
  Launcher* Add(const std::string& nnodes, int workers, int steps, const std::vector<std::string>& program = {},
                const std::string& conf = "last_call_timeout=100") {
    std::vector<std::string> flags = {absl::StrCat("--nnodes=", nnodes),
                                      absl::StrCat("--nproc-per-node=", workers),
                                      absl::StrCat("--rdzv-endpoint=127.0.0.1:", port_),
                                      absl::StrCat("--rdzv-conf=", conf),
                                      "--max-restarts=20",
                                      "--no-python",
                                      "tests/worker_runtime/elastic/elastic_program",
                                      absl::StrCat("--steps=", steps),
                                      "--ledger",
                                      absl::StrCat("--samples=", kSamples)};
    flags.insert(flags.end(), program.begin(), program.end());
    flags.insert(flags.begin(), launcher_flags_.begin(), launcher_flags_.end());
    nodes_.push_back(std::make_unique<Launcher>(flags, std::map<std::string, std::string>{{"OMP_NUM_THREADS", "1"}}));
    return nodes_.back().get();
  }

  // From this step on all workers wait until OpenGate is called with the same name.
  std::string GateAt(int step, const std::string& name) const {
    return absl::StrCat("--gate=", step, ":", dir_.File(name));
  }
  void OpenGate(const std::string& name) const { std::ofstream(dir_.File(name)) << "open"; }
  // Waits until all workers of these nodes, `ranks` in total, are at a gate in this step and round.
  void AwaitGate(int step, int round, const std::vector<Launcher*>& nodes, int ranks) {
    EXPECT_TRUE(Eventually([&] {
      std::set<std::string> at;
      for (Launcher* node : nodes) {
        for (int rank = 0; rank < ranks; ++rank) {
          const std::string line = absl::StrCat("gate ", step, " round ", round, " rank ", rank, "\n");
          if (absl::StrContains(node->Out(), line)) at.insert(line);
        }
      }
      return static_cast<int>(at.size()) == ranks;
    })) << "step "
        << step << " of round " << round << "\n"
        << Out() << Err();
  }

  Launcher* Of(int rank) const {
    for (const auto& node : nodes_) {
      for (const auto& [other, pid] : ProcessesIn(node->Out())) {
        if (other == rank) return node.get();
      }
    }
    ADD_FAILURE() << "no node of rank " << rank;
    return nullptr;
  }
  std::vector<Launcher*> AllBut(const Launcher* gone = nullptr) const {
    std::vector<Launcher*> others;
    for (const auto& node : nodes_) {
      if (node.get() != gone) others.push_back(node.get());
    }
    return others;
  }
  std::string Out() const {
    std::string all;
    for (const auto& node : nodes_) all += node->Out();
    return all;
  }
  std::string Err() const {
    std::string all;
    for (const auto& node : nodes_) absl::StrAppend(&all, "--- launcher ", node->pid(), "\n", node->Err());
    return all;
  }
  void ExpectEnd(const std::vector<Launcher*>& nodes) {
    for (Launcher* node : nodes) EXPECT_EQ(node->Wait(), 0) << node->Err();
    std::set<std::string> models;
    for (Launcher* node : nodes) {
      EXPECT_GT(ModelsIn(node->Out()).size(), 0);
      for (const auto& [rank, model] : ModelsIn(node->Out())) models.insert(model);
    }
    EXPECT_EQ(models.size(), 1);
  }
  static void ExpectProcesses(Launcher* node, size_t processes) {
    EXPECT_EQ(ProcessesIn(node->Out()).size(), processes) << node->Out() << node->Err();
  }
  // Each sample is part of a committed step exactly once per epoch. The last epoch may be incomplete.
  void ExpectEachSampleOncePerEpoch() const {
    const auto samples = CommittedSamplesIn(Out());
    ASSERT_GE(samples.size(), 2);
    for (const auto& [epoch, seen] : samples) {
      const std::set<int64_t> once(seen.begin(), seen.end());
      EXPECT_EQ(once.size(), seen.size()) << "epoch " << epoch << " has a sample twice";
      if (epoch != samples.rbegin()->first) {
        EXPECT_EQ(seen.size(), kSamples) << "epoch " << epoch;
      }
    }
  }
  // Output of an undisturbed training of `ranks` on one node.
  static const std::string& Reference(int ranks, int steps) {
    static auto* const made = new std::map<std::pair<int, int>, std::string>;
    std::string& out = (*made)[{ranks, steps}];
    if (out.empty()) {
      Launcher launcher({"--standalone", absl::StrCat("--nproc-per-node=", ranks), "--no-python",
                         "tests/worker_runtime/elastic/elastic_program", absl::StrCat("--steps=", steps),
                         absl::StrCat("--samples=", kSamples)},
                        {{"OMP_NUM_THREADS", "1"}});
      EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
      out = launcher.Out();
    }
    return out;
  }
  void ExpectSameBitsAsReference(int ranks, int steps) const {
    ExpectSameTraining(Out(), Reference(ranks, steps), steps);
  }

  const TempDir dir_;
  int port_ = FreePort();
  std::vector<std::string> launcher_flags_;  // flags of all nodes that are added from now on
  std::unique_ptr<Process> server_;
  std::vector<std::unique_ptr<Launcher>> nodes_;
};

// The node of rank 0 hosts the store of the round.
class NodeKilledTest : public ElasticNodesTest, public ::testing::WithParamInterface<int> {};

TEST_P(NodeKilledTest, Kill_NewNodeJoins_NoSampleIsLostOrRepeated) {
  StartServer();
  const std::vector<std::string> program = {GateAt(3, "shrunk"), GateAt(8, "grown")};
  for (int i = 0; i < 3; ++i) Add("2:3", 1, 30, program);
  AwaitGate(3, 1, AllBut(), 3);
  Launcher* const victim = Of(GetParam());
  const pid_t worker = ProcessesIn(victim->Out()).at(0).second;
  const std::vector<Launcher*> survivors = AllBut(victim);
  victim->Signal(SIGKILL);
  AwaitGate(3, 2, survivors, 2);
  EXPECT_FALSE(Alive(worker));
  OpenGate("shrunk");
  AwaitGate(8, 2, survivors, 2);
  Launcher* const newcomer = Add("2:3", 1, 30, program);
  const std::vector<Launcher*> grown = AllBut(victim);
  AwaitGate(9, 3, grown, 3);
  OpenGate("grown");
  ExpectEnd(grown);
  for (Launcher* node : survivors) ExpectProcesses(node, 1);
  ExpectProcesses(newcomer, 1);
  ExpectEachSampleOncePerEpoch();
}

INSTANTIATE_TEST_SUITE_P(Rank, NodeKilledTest, ::testing::Values(0, 2));

// Launcher and worker of a node are stopped, with or without its guard.
class NodeStoppedTest : public ElasticNodesTest, public ::testing::WithParamInterface<bool> {
 protected:
  static std::vector<pid_t> ChildrenOf(pid_t pid) {
    std::vector<pid_t> children;
    std::ifstream file(absl::StrCat("/proc/", pid, "/task/", pid, "/children"));
    for (pid_t child = 0; file >> child;) children.push_back(child);
    return children;
  }
  static std::string NameOf(pid_t pid) { return ReadFile(absl::StrCat("/proc/", pid, "/comm")); }
};

TEST_P(NodeStoppedTest, Stop_Resumed_OtherContinuesUndisturbed) {
  StartServer();
  const std::vector<std::string> program = {GateAt(3, "alone"), GateAt(20, "together")};
  const std::string conf = "last_call_timeout=100,heartbeat_timeout=2";
  for (int i = 0; i < 2; ++i) Add("1:2", 1, 30, program, conf);
  AwaitGate(3, 1, AllBut(), 2);
  Launcher* const silent = Of(1);
  Launcher* const other = Of(0);
  const bool with_guard = GetParam();
  std::vector<pid_t> stopped;
  bool guard_found = false;
  for (const pid_t child : ChildrenOf(silent->pid())) {
    const bool guard = NameOf(child) == "ddprun-guard\n";
    guard_found = guard_found || guard;
    if (!guard || with_guard) stopped.push_back(child);
  }
  ASSERT_TRUE(guard_found);
  stopped.push_back(silent->pid());
  for (const pid_t pid : stopped) kill(pid, SIGSTOP);
  AwaitGate(3, 2, {other}, 1);
  OpenGate("alone");
  AwaitGate(20, 2, {other}, 1);
  for (const pid_t pid : stopped) kill(pid, SIGCONT);
  AwaitGate(21, 3, AllBut(), 2);
  OpenGate("together");
  ExpectEnd(AllBut());
  ExpectProcesses(other, 1);
  ExpectProcesses(silent, 2);
  ExpectEachSampleOncePerEpoch();
}

INSTANTIATE_TEST_SUITE_P(GuardToo, NodeStoppedTest, ::testing::Bool());

// The server has a state folder or none.
class ServerKilledTest : public ElasticNodesTest, public ::testing::WithParamInterface<bool> {
 protected:
  void Start() {
    StartServer(GetParam() ? std::vector<std::string>{absl::StrCat("--state-dir=", dir_.File("state"))}
                           : std::vector<std::string>{});
  }
  void AwaitInErr(const std::string& text) {
    for (const auto& node : nodes_) EXPECT_TRUE(node->WaitForErr(text)) << node->Err();
  }
};

TEST_P(ServerKilledTest, InATraining_NoWorkerNotices) {
  Start();
  for (int i = 0; i < 2; ++i) Add("2", 1, 12, {GateAt(3, "away"), GateAt(6, "back")});
  AwaitGate(3, 1, AllBut(), 2);
  server_->Signal(SIGKILL);
  AwaitInErr("lost the rendezvous server");
  OpenGate("away");
  AwaitGate(6, 1, AllBut(), 2);
  Start();
  AwaitInErr("reached the rendezvous server");
  OpenGate("back");
  ExpectEnd(AllBut());
  for (Launcher* node : AllBut()) ExpectProcesses(node, 1);
  EXPECT_THAT(Out(), Not(HasSubstr("round 2")));
  ExpectSameBitsAsReference(2, 12);
}

// One node is stopped when the round ends, so that the next one can't begin before the server is killed.
TEST_P(ServerKilledTest, BetweenTwoRounds_SurvivorsKeepTheirProcesses) {
  Start();
  for (int i = 0; i < 2; ++i) Add("2", 2, 12, {GateAt(3, "gate")});
  AwaitGate(3, 1, AllBut(), 4);
  Launcher* const failing = Of(0);
  Launcher* const slow = Of(2);
  slow->Signal(SIGSTOP);
  kill(ProcessesIn(failing->Out()).at(0).second, SIGKILL);
  EXPECT_TRUE(server_->WaitForErr("was killed by SIGKILL")) << server_->Err();
  server_->Signal(SIGKILL);
  server_->Wait();
  slow->Signal(SIGCONT);
  AwaitInErr("lost the rendezvous server");
  Start();
  AwaitGate(3, 2, AllBut(), 4);
  OpenGate("gate");
  ExpectEnd(AllBut());
  ExpectProcesses(failing, 3);
  ExpectProcesses(slow, 2);
  ExpectSameBitsAsReference(4, 12);
}

// The survivor sends its state to the newcomer of the next round, which dies, too.
TEST_P(ServerKilledTest, WhileTheStateIsSent_TheSurvivorKeepsItsProcess) {
  Start();
  for (int i = 0; i < 2; ++i) Add("2", 1, 12, {GateAt(3, "gate"), "--hold=0:3:sending"});
  AwaitGate(3, 1, AllBut(), 2);
  Launcher* const survives = Of(0);
  Launcher* const other = Of(1);
  kill(ProcessesIn(other->Out()).at(0).second, SIGKILL);
  ASSERT_TRUE(survives->WaitForOut("holding sending")) << Err();
  server_->Signal(SIGKILL);
  AwaitInErr("lost the rendezvous server");
  kill(ProcessesIn(other->Out()).at(1).second, SIGKILL);
  Start();
  AwaitGate(3, 3, AllBut(), 2);
  OpenGate("gate");
  ExpectEnd(AllBut());
  ExpectProcesses(survives, 1);
  ExpectProcesses(other, 3);
  ExpectSameBitsAsReference(2, 12);
}

INSTANTIATE_TEST_SUITE_P(StateDir, ServerKilledTest, ::testing::Bool());

TEST_F(ElasticNodesTest, TheLauncherThatHostsTheServerIsKilled_AnotherTakesItOverAndTheWorkersAreKept) {
  const std::vector<std::string> program = {GateAt(3, "gate")};
  const std::string conf = "last_call_timeout=100,heartbeat_timeout=2";
  Launcher* const host = Add("2:3", 1, 20, program, conf);
  ASSERT_TRUE(Eventually([&] { return CanConnect(port_); })) << host->Err();
  for (int i = 0; i < 2; ++i) Add("2:3", 1, 20, program, conf);
  AwaitGate(3, 1, AllBut(), 3);
  host->Signal(SIGKILL);
  AwaitGate(3, 2, AllBut(host), 2);
  OpenGate("gate");
  ExpectEnd(AllBut(host));
  for (Launcher* node : AllBut(host)) ExpectProcesses(node, 1);
  ExpectEachSampleOncePerEpoch();
}

TEST_F(ElasticNodesTest, ANodeLeaves_TheOthersFinishTheirStep_NothingIsLostOrCharged) {
  StartServer();
  for (int i = 0; i < 3; ++i) Add("2:3", 1, 30, {GateAt(3, "gate")});
  AwaitGate(3, 1, AllBut(), 3);
  Launcher* const leaver = Of(2);
  const std::vector<Launcher*> others = AllBut(leaver);
  leaver->Signal(SIGTERM);
  EXPECT_EQ(leaver->Wait(), 128 + SIGTERM) << leaver->Err();
  AwaitGate(4, 2, others, 2);
  OpenGate("gate");
  ExpectEnd(others);
  for (Launcher* node : others) {
    ExpectProcesses(node, 1);
    EXPECT_EQ(Count(node->Out(), "batch 3 "), 1) << "the step was made again";
    EXPECT_THAT(node->Err(), Not(HasSubstr("restarts left")));
  }
  EXPECT_EQ(Count(leaver->Out(), "commit 3 round 1"), 1);
  ExpectEachSampleOncePerEpoch();
}

TEST_F(ElasticNodesTest, AHangOnOneNode_IsNamedThereWithItsPhase_AndTheWorkerIsReplaced) {
  StartServer();
  launcher_flags_ = {"--on-hang=restart:5"};
  for (int i = 0; i < 2; ++i) Add("2", 2, 12, {"--hold=3:3:forward", "--pause=20"});
  ExpectEnd(AllBut());
  Launcher* const hung = Of(3);
  EXPECT_THAT(hung->Err(), HasSubstr("rank 3 has been in phase forward of step 3 for 5."));
  for (Launcher* node : AllBut(hung)) EXPECT_THAT(node->Err(), Not(HasSubstr("has been in phase forward")));
  EXPECT_EQ(ProcessesIn(Out()).size(), 5) << "only it was replaced";
  ExpectSameBitsAsReference(4, 12);
}

int NumberFrom(const char* variable, int otherwise) {
  const char* const given = std::getenv(variable);
  return given == nullptr ? otherwise : std::stoi(given);
}

// Runs other kills with DDPRUN_KILL_SEED=1 bazel run ...
int Seed() {
  const int seed = NumberFrom("DDPRUN_KILL_SEED", 20261123);
  std::printf("seed %d\n", seed);
  return seed;
}

// Checkpoints are on each node's own disk, whose folder the node makes when it first saves. The parameter is a flag.
class OwnFoldersTest : public ElasticNodesTest, public ::testing::WithParamInterface<const char*> {
 protected:
  static constexpr int kSteps = 50;

  void StartJob(const std::string& name, int every) {
    nodes_.clear();
    folders_.clear();
    server_.reset();
    port_ = FreePort();
    StartServer();
    for (int node = 0; node < 2; ++node) {
      const std::string folder = dir_.File(absl::StrCat(name, "/node", node, "/checkpoints"));
      folders_[Add("1:2", 1, kSteps,
                   {GateAt(kSteps - 5, name + ".gate"), absl::StrCat("--every=", every), "--folder=" + folder,
                    GetParam()})] = folder;
    }
  }
  // Kills the node of rank 0, and its worker at the same moment. Returns the other node.
  Launcher* LoseTheNodeOfRankZero() {
    Launcher* const victim = Of(0);
    victim->Signal(SIGKILL);
    kill(ProcessesIn(victim->Out()).at(0).second, SIGKILL);
    return AllBut(victim).at(0);
  }

  std::map<Launcher*, std::string> folders_;
};

// Runs more jobs with DDPRUN_LOST_NODES=200 bazel run ...
TEST_P(OwnFoldersTest, NodeOfRankZeroIsLost_TheOtherKeepsTheStepsAndSavesThem) {
  std::mt19937 random(Seed());
  const int jobs = NumberFrom("DDPRUN_LOST_NODES", 2);
  for (int job = 0; job < jobs && !HasFailure(); ++job) {
    const std::string name = absl::StrCat("job", job);
    SCOPED_TRACE(name);
    StartJob(name, /*every=*/3);
    const std::string step = absl::StrCat("step ", 1 + random() % (kSteps - 10), " rank 1");
    ASSERT_TRUE(Eventually([&] { return absl::StrContains(Out(), step); })) << Err();
    Launcher* const survivor = LoseTheNodeOfRankZero();
    OpenGate(name + ".gate");
    ExpectEnd({survivor});
    ExpectProcesses(survivor, 1);
    ExpectEachSampleOncePerEpoch();
    EXPECT_TRUE(std::filesystem::exists(absl::StrCat(folders_[survivor], "/step_000000", kSteps, ".safetensors")));
  }
}

TEST_P(OwnFoldersTest, TheOthersFolderCantBeMade_TheJobEndsInsteadOfBeginningAgain) {
  StartJob("job", /*every=*/1);
  AwaitGate(kSteps - 5, 1, AllBut(), 2);
  const std::string folder = folders_[AllBut(Of(0)).at(0)];
  std::ofstream(std::filesystem::path(folder).parent_path()) << "not a folder";
  Launcher* const survivor = LoseTheNodeOfRankZero();
  OpenGate("job.gate");
  EXPECT_EQ(survivor->Wait(), 78) << survivor->Err();
  ExpectProcesses(survivor, 1);
  EXPECT_THAT(survivor->Err(), HasSubstr(absl::StrCat("can't create folder ", folder, ": Not a directory")));
}

INSTANTIATE_TEST_SUITE_P(Async, OwnFoldersTest, ::testing::Values("--ledger", "--async"));

TEST_F(ElasticNodesTest, TenRandomKills_TheBitsAreTheSame) {
  constexpr int kRanks = 4, kKills = 10, kSteps = 200, kBetween = 18;
  const int seed = Seed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  StartServer();
  for (int i = 0; i < 2; ++i) Add("2", 2, kSteps, {GateAt(kSteps - 10, "gate")});
  for (int i = 0; i < kKills && !HasFailure(); ++i) {
    const int64_t step = 1 + i * kBetween + static_cast<int>(random() % kBetween);
    const int rank = static_cast<int>(random() % kRanks);
    pid_t victim = 0;
    EXPECT_TRUE(Eventually([&] {
      const std::string out = Out();
      if (!absl::StrContains(out, absl::StrCat("step ", step, " rank "))) return false;
      for (const auto& [other, pid] : ProcessesIn(out)) {
        if (other == rank && Alive(pid)) victim = pid;
      }
      return victim != 0;
    })) << Err();
    if (victim != 0) kill(victim, SIGKILL);
  }
  OpenGate("gate");
  ExpectEnd(AllBut());
  EXPECT_EQ(ProcessesIn(Out()).size(), kRanks + kKills) << "only those that were killed are started again";
  ExpectSameBitsAsReference(kRanks, kSteps);
  ExpectEachSampleOncePerEpoch();
}

}  // namespace
}  // namespace ddprun::testing
