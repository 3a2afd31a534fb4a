#include "launcher/process/orphan_sweeper.h"

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "launcher/process/proc_files.h"
#include "launcher/process/spawn_process.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

// Kills orphans until none is left or a time limit is reached.
int Sweep(const std::vector<pid_t>& known) {
  size_t left = 0;
  testing::Eventually([&] { return (left = KillOrphans(known).size()) == 0; });
  return static_cast<int>(left);
}

class OrphanSweeperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(BecomeSubreaper().ok());
    ASSERT_TRUE(ChildrenOfMainThread().empty());
  }

  // Starts a worker with relatives (see tests/testbin/family.cc) and returns it when all are in place.
  Child StartFamily() {
    Talker talker = SpawnTalker(RequestFor({TestProgram("family")}));
    pids_ = ReadPids(talker.output.get(), "ready");
    return std::move(talker.child);
  }

  static void KillAndSweep(const Child& child) {
    kill(child.pid, SIGKILL);
    WaitFor(child);
    EXPECT_EQ(Sweep({}), 0);
  }

  std::multimap<std::string, pid_t> pids_;
};

TEST_F(OrphanSweeperTest, Sweep_KnownWorkerRuns_OnlyOrphansAreKilled) {
  EXPECT_EQ(Sweep({}), 0) << "there are no children yet";
  const Child child = StartFamily();
  EXPECT_EQ(Sweep({child.pid}), 0);
  EXPECT_TRUE(WaitUntilGone(pids_.find("daemon")->second));
  for (const char* own : {"group", "session"}) EXPECT_EQ(kill(pids_.find(own)->second, 0), 0) << own;
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, child.pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
  EXPECT_EQ(info.si_pid, 0) << "the known worker was killed";
  KillAndSweep(child);
}

TEST_F(OrphanSweeperTest, OrphanSweep_EndsWhenAllHaveExited) {
  const Child child = StartFamily();
  OrphanSweep sweep(/*only_worker_sessions=*/false);
  EXPECT_FALSE(sweep.running());
  sweep.Begin(SteadyNow());
  EXPECT_TRUE(testing::Eventually([&] {
    EXPECT_EQ(sweep.Continue({child.pid}, {child.pid}, SteadyNow()), 0);
    return !sweep.running();
  }));
  EXPECT_FALSE(testing::Alive(pids_.find("daemon")->second));
  KillAndSweep(child);
}

TEST_F(OrphanSweeperTest, Sweep_OrphansInAKnownWorkersSession_AreSpared) {
  const auto [worker, output] =
      SpawnTalker(RequestFor({"/bin/sh", "-c", "sh -c 'sleep 1000 & echo orphan $!'; echo ready; sleep 1000"}));
  const pid_t orphan = ReadPids(output.get(), "ready").find("orphan")->second;
  ASSERT_EQ(getsid(orphan), worker.pid);
  EXPECT_EQ(Sweep({worker.pid}), 0);
  EXPECT_TRUE(testing::Alive(orphan));

  KillAndSweep(worker);
  EXPECT_FALSE(testing::Alive(orphan));
}

TEST_F(OrphanSweeperTest, Sweep_WorkerIsDead_DescendantsAreKilledAndReaped) {
  const Child child = StartFamily();
  KillAndSweep(child);
  for (const auto& [kind, pid] : pids_) {
    EXPECT_EQ(kill(pid, 0), -1) << kind;
    EXPECT_EQ(errno, ESRCH) << kind << " was not reaped";
  }
}

TEST_F(OrphanSweeperTest, Sweep_OtherSessions_AreSpared) {
  const Child child = StartFamily();
  kill(child.pid, SIGKILL);
  WaitFor(child);
  const std::set<pid_t> sessions = {child.pid};
  EXPECT_TRUE(testing::Eventually([&] { return KillOrphans({}, &sessions).empty(); }));
  EXPECT_TRUE(WaitUntilGone(pids_.find("group")->second));
  for (const char* own : {"daemon", "session"}) {
    const pid_t pid = pids_.find(own)->second;
    const bool in_session_of_worker = getsid(pid) == child.pid;
    EXPECT_FALSE(in_session_of_worker) << own;
    EXPECT_EQ(kill(pid, 0), 0) << own;
  }
  EXPECT_EQ(Sweep({}), 0);
}

TEST_F(OrphanSweeperTest, Sweep_ChainOfSessions_IsKilled) {
  // Each process killed makes its child an orphan.
  const auto [child, output] =
      SpawnTalker(RequestFor({"/bin/sh", "-c",
                              "setsid sh -c 'setsid sh -c \"setsid sh -c \\\"echo last \\\\$\\\\$; echo ready; "
                              "sleep 1000\\\"; true\"; true'; true"}));
  const auto pids = ReadPids(output.get(), "ready");
  EXPECT_EQ(Sweep({}), 0);
  EXPECT_TRUE(WaitUntilGone(pids.find("last")->second));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

TEST_F(OrphanSweeperTest, Kill_OrphanCanNotBeReaped_ReturnsAtOnce) {
  const Child child = StartFamily();
  const pid_t daemon = pids_.find("daemon")->second;
  // While the process is traced, its tracer is notified of its death first.
  int stop[2];
  ASSERT_EQ(pipe(stop), 0);
  const pid_t tracer = fork();
  if (tracer == 0) {
    char byte;
    const bool traces = ptrace(PTRACE_SEIZE, daemon, nullptr, nullptr) == 0;
    if (write(stop[1], traces ? "y" : "n", 1) == 1) read(stop[0], &byte, 0);
    while (true) pause();
  }
  char traces = 0;
  ASSERT_EQ(read(stop[0], &traces, 1), 1);
  if (traces != 'y') GTEST_SKIP() << "tracing is not allowed here";
  EXPECT_EQ(KillOrphans({child.pid, tracer}), std::vector<pid_t>{daemon});
  EXPECT_TRUE(WaitUntilGone(daemon));
  EXPECT_EQ(KillOrphans({child.pid, tracer}), std::vector<pid_t>{daemon})
      << "it is dead, but its tracer has not let go of it";
  kill(child.pid, SIGKILL);
  WaitFor(child);
  EXPECT_EQ(Sweep({}), 0) << "with its tracer it goes, too";
}

TEST_F(OrphanSweeperTest, ReapDeadOrphans_LivingOnes_AreSpared) {
  const Child child = StartFamily();
  const pid_t daemon = pids_.find("daemon")->second;
  ReapDeadOrphans({child.pid});
  EXPECT_EQ(kill(daemon, 0), 0);
  kill(daemon, SIGKILL);
  ASSERT_TRUE(WaitUntilGone(daemon));
  EXPECT_EQ(kill(daemon, 0), 0) << "still a zombie";
  ReapDeadOrphans({child.pid});
  EXPECT_EQ(kill(daemon, 0), -1);

  // A known process is left for its owner to reap.
  kill(child.pid, SIGKILL);
  ASSERT_TRUE(WaitUntilGone(child.pid));
  ReapDeadOrphans({child.pid});
  EXPECT_EQ(WaitFor(child).code, SIGKILL);
  EXPECT_EQ(Sweep({}), 0);
}

}  // namespace
}  // namespace ddprun::launcher
