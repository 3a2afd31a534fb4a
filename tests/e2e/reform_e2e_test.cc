// Workers that outlive their round, with real launchers (docs/worker_protocol.md, section 5). The workers are Python
// programs that speak the worker link with ddprun.worker.
#include <signal.h>

#include <algorithm>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

// Prints its ranks at the start of each round and waits for the end of the round. Its step is its first round.
constexpr char kWorker[] = R"(
import os, signal, sys
# Python's own handler runs later, so a signal may come between it and a pause, which then lasts.
signal.signal(signal.SIGINT, signal.SIG_DFL)
if os.environ.get("PLAIN") != os.environ["RANK"]:
    from ddprun import worker
first = os.environ["DDPRUN_ROUND"]

def say(what):
    name = {v: os.environ[v] for v in ("RANK", "WORLD_SIZE", "GROUP_RANK", "LOCAL_RANK", "DDPRUN_ROUND")}
    text = "{RANK}/{WORLD_SIZE} group={GROUP_RANK} local={LOCAL_RANK} round={DDPRUN_ROUND}".format(**name)
    restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
    print(f"{what} rank={text} pid={os.getpid()} restarts={restarts} .\n", end="", flush=True)

if os.environ.get("PLAIN") == os.environ["RANK"]:
    say("new")
    signal.pause()
worker.keep_process(on_suspend=lambda suspend: None)
say("new")
while True:
    if not worker.suspended(int(first)):
        signal.pause()  # until SIGTERM
    print(f"suspended {worker.suspend_requested()} .\n", end="", flush=True)
    round = worker.next_round()
    if round is None:
        signal.pause()
    say(f"kept source={round.state_source} ")
)";

struct Said {
  bool kept = false;
  int world_size = 0;
  int local_rank = 0;
  int restarts = 0;
  pid_t pid = 0;
};

class ReformE2eTest : public PythonWorkersTest {
 protected:
  std::unique_ptr<Launcher> Launch(int slots, std::vector<std::string> more,
                                   std::map<std::string, std::string> environment = {}) const {
    more.insert(more.begin(), {absl::StrCat("--nproc-per-node=", slots), "--max-restarts=3"});
    more.push_back(Script(kWorker));
    environment.insert(environment_.begin(), environment_.end());
    return std::make_unique<Launcher>(std::move(more), std::move(environment));
  }
  std::unique_ptr<Launcher> Node(const std::string& nnodes, int slots, std::vector<std::string> more = {},
                                 std::map<std::string, std::string> environment = {}) {
    for (const std::string& flag :
         {absl::StrCat("--nnodes=", nnodes), absl::StrCat("--rdzv-endpoint=127.0.0.1:", port_),
          std::string("--rdzv-conf=last_call_timeout=1")}) {
      more.push_back(flag);
    }
    return Launch(slots, std::move(more), std::move(environment));
  }

  // Workers that reported in this round, by rank.
  static std::map<int, Said> InRound(Launcher* launcher, int round) {
    static const std::regex kLine(
        "(new|kept)[^=\n]*(?:source=\\S+)? +rank=(\\d+)/(\\d+) group=\\d+ local=(\\d+) round=(\\d+) pid=(\\d+) "
        "restarts=(\\d+) \\.");
    std::map<int, Said> said;
    const std::string out = launcher->Out();
    for (std::sregex_iterator it(out.begin(), out.end(), kLine), end; it != end; ++it) {
      const std::smatch& m = *it;
      if (std::stoi(m[5]) != round) continue;
      said[std::stoi(m[2])] = {m[1] == "kept", std::stoi(m[3]), std::stoi(m[4]), std::stoi(m[7]), std::stoi(m[6])};
    }
    return said;
  }
  // Waits until all workers of these launchers have reported in the round.
  static std::map<int, Said> WaitForRound(const std::vector<Launcher*>& launchers, int round, size_t workers) {
    std::map<int, Said> said;
    EXPECT_TRUE(Eventually([&] {
      said.clear();
      for (Launcher* launcher : launchers) said.merge(InRound(launcher, round));
      return said.size() == workers;
    })) << launchers[0]->Out()
        << launchers[0]->Err();
    return said;
  }
  // Waits for the next round after the death of `dead`, and checks that all others are kept.
  static std::map<int, Said> ExpectReplaced(const std::vector<Launcher*>& launchers, const std::map<int, Said>& before,
                                            const std::vector<int>& dead, int round = 2) {
    std::map<int, Said> after = WaitForRound(launchers, round, before.size());
    for (const auto& [rank, was] : before) {
      const bool died = std::find(dead.begin(), dead.end(), rank) != dead.end();
      EXPECT_EQ(after[rank].kept, !died) << rank;
      EXPECT_EQ(after[rank].pid == was.pid, !died) << rank;
      EXPECT_EQ(after[rank].local_rank, was.local_rank);
    }
    return after;
  }
  static void EndAll(const std::vector<Launcher*>& launchers, const std::map<int, Said>& workers) {
    for (Launcher* launcher : launchers) launcher->Signal(SIGTERM);
    for (Launcher* launcher : launchers) EXPECT_EQ(launcher->Wait(), 128 + SIGTERM) << launcher->Err();
    for (const auto& [rank, worker] : workers) EXPECT_FALSE(Alive(worker.pid)) << rank;
  }

  const int port_ = FreePort();
};

TEST_F(ReformE2eTest, ReForm_WorkerKilled_OthersKeepProcesses) {
  const auto launcher = Launch(3, {"--standalone"});
  const auto first = WaitForRound({launcher.get()}, 1, 3);
  kill(first.at(1).pid, SIGKILL);
  const auto second = ExpectReplaced({launcher.get()}, first, {1});
  EXPECT_EQ(second.at(0).restarts, 1);
  EXPECT_THAT(launcher->Out(), HasSubstr("kept source=0  rank=2/3"));
  // Again, with the replacement.
  kill(second.at(1).pid, SIGKILL);
  EndAll({launcher.get()}, ExpectReplaced({launcher.get()}, second, {1}, 3));
}

TEST_F(ReformE2eTest, ReForm_TwoNodes_OthersKeepProcesses) {
  const auto a = Node("2", 2), b = Node("2", 2);
  const auto first = WaitForRound({a.get(), b.get()}, 1, 4);
  kill(first.at(3).pid, SIGKILL);
  EndAll({a.get(), b.get()}, ExpectReplaced({a.get(), b.get()}, first, {3}));
}

TEST_F(ReformE2eTest, ReForm_PlainWorkerOnAnotherNode_AllRestartWithReason) {
  const auto a = Node("2", 2, {}, {{"PLAIN", "3"}}), b = Node("2", 2, {}, {{"PLAIN", "3"}});
  const auto first = WaitForRound({a.get(), b.get()}, 1, 4);
  kill(first.at(0).pid, SIGKILL);
  EndAll({a.get(), b.get()}, ExpectReplaced({a.get(), b.get()}, first, {0, 1, 2, 3}));
  Launcher* const aware = InRound(a.get(), 1).count(0) != 0 ? a.get() : b.get();
  EXPECT_THAT(aware->Err(), HasSubstr("stopping rank 1, which can't go on: restarting all workers: those of node "));
}

// Three nodes of two workers each, of which two suffice; the server is a separate program.
class ThreeNodesTest : public ReformE2eTest {
 protected:
  ThreeNodesTest() {
    for (int i = 0; i < 3; ++i) nodes_.push_back(Node("2:3", 2));
    first_ = WaitForRound(All(), 1, 6);
  }
  std::vector<Launcher*> All() const {
    std::vector<Launcher*> all;
    for (const auto& node : nodes_) all.push_back(node.get());
    return all;
  }
  // The launcher whose local rank 0 has this rank.
  Launcher* Of(int rank) const {
    for (Launcher* node : All()) {
      if (InRound(node, 1).count(rank) != 0) return node;
    }
    return nullptr;
  }
  // The other nodes' workers are the same processes, with ranks 0 to 3.
  std::map<int, Said> ExpectTheOthersGoOn(Launcher* gone) {
    std::vector<Launcher*> others = All();
    others.erase(std::find(others.begin(), others.end(), gone));
    const auto second = WaitForRound(others, 2, 4);
    std::set<pid_t> before, after;
    for (Launcher* node : others) {
      for (const auto& [rank, worker] : InRound(node, 1)) before.insert(worker.pid);
    }
    for (const auto& [rank, worker] : second) {
      EXPECT_TRUE(worker.kept) << rank;
      EXPECT_EQ(worker.world_size, 4);
      after.insert(worker.pid);
    }
    EXPECT_EQ(before, after);
    EndAll(others, second);
    return second;
  }

  Rendezvousd server_{port_};
  std::vector<std::unique_ptr<Launcher>> nodes_;
  std::map<int, Said> first_;
};

TEST_F(ThreeNodesTest, ReForm_NodeLost_OthersContinueWithFewer) {
  Launcher* const victim = Of(2);
  const auto its_own = InRound(victim, 1);
  victim->Signal(SIGKILL);
  ExpectTheOthersGoOn(victim);
  for (const auto& [rank, worker] : its_own) EXPECT_FALSE(Alive(worker.pid)) << rank;
}

TEST_F(ThreeNodesTest, ReForm_NodePreempted_OthersContinueWithoutCharge) {
  Launcher* const victim = Of(2);
  victim->Signal(SIGTERM);
  EXPECT_EQ(victim->Wait(), 128 + SIGTERM) << victim->Err();
  Launcher* const other = Of(0);
  for (const auto& [rank, worker] : ExpectTheOthersGoOn(victim)) EXPECT_EQ(worker.restarts, 0) << rank;
  EXPECT_THAT(other->Out(), HasSubstr("suspended Suspend(round=1, at_step_end=True"));
}

// One node of two is lost: the other node's workers are suspended and wait.
TEST_F(ReformE2eTest, ReForm_CtrlCWhileSuspended_WorkersEnd) {
  const auto a = Node("2", 2), b = Node("2", 2);
  const auto first = WaitForRound({a.get(), b.get()}, 1, 4);
  // The launcher with rank 0 hosts the server.
  Launcher* const stays = InRound(a.get(), 1).count(0) != 0 ? a.get() : b.get();
  (stays == a.get() ? b : a)->Signal(SIGKILL);
  EXPECT_TRUE(Eventually([&] { return Count(stays->Out(), "suspended Suspend(round=1") == 2; })) << stays->Err();
  stays->Signal(SIGINT);
  EXPECT_EQ(stays->Wait(), 128 + SIGINT) << stays->Err();
  for (const auto& [rank, worker] : first) EXPECT_FALSE(Alive(worker.pid)) << rank;
}

}  // namespace
}  // namespace ddprun::testing
