// Parts of Spawn without LibTorch: the environment of workers, and sets of processes.
#include "worker_runtime/spawn/worker_processes.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/steady_time.h"

namespace ddprun {
namespace {

TEST(SpawnMarkTest, FromText_OwnText_RoundTrips) {
  const SpawnMark mark{3, 4711, 9};
  EXPECT_EQ(mark.Text(), "3:4711:9");
  EXPECT_EQ(SpawnMark::FromText(mark.Text()), mark);
  for (const char* text : {"", "3", "3:4711", "3:4711:9:1", "0:4711:9", "3:0:9", "3:4711:-1", "a:4711:9", "3::9"}) {
    EXPECT_EQ(SpawnMark::FromText(text), std::nullopt) << text;
  }
}

TEST(SpawnEnvironmentTest, EnvironmentOf_ParentHasLauncherVariables_ReplacesThem) {
  const std::vector<std::string> environment =
      EnvironmentOf({.rank = 2, .nprocs = 4, .store_port = 1234, .mark = {1, 99, 5}},
                    {"HOME=/home/me", "LOCAL_RANK=7", "TORCHELASTIC_RUN_ID=old", "DDPRUN_ROUND=3",
                     "DDPRUN_WORKER_LINK=@old", "RANKS=5"});
  EXPECT_EQ(environment, (std::vector<std::string>{
                             "HOME=/home/me", "RANKS=5", "RANK=2", "WORLD_SIZE=4", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=4",
                             "GROUP_RANK=0", "GROUP_WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1234",
                             "TORCHELASTIC_USE_AGENT_STORE=True", "TORCHELASTIC_ERROR_FILE=/proc/self/fd/5",
                             "DDPRUN_SPAWN=1:99:5", "OMP_NUM_THREADS=1"}));
}

TEST(SpawnEnvironmentTest, EnvironmentOf_ThreadsAreSetOrOneWorker_KeepsThem) {
  const auto threads = [](int nprocs, std::vector<std::string> parents) {
    const std::vector<std::string> all = EnvironmentOf({.nprocs = nprocs}, parents);
    return std::count(all.begin(), all.end(), "OMP_NUM_THREADS=1");
  };
  EXPECT_EQ(threads(2, {}), 1);
  EXPECT_EQ(threads(2, {"OMP_NUM_THREADS=8"}), 0);
  EXPECT_EQ(threads(1, {}), 0);
}

ProcessSet::Command Shell(const std::string& script) { return {"/bin/sh", {"sh", "-c", script}, {"PATH=/bin"}, -1}; }

TEST(ProcessSetTest, Wait_SeveralEnd_ReturnsThemAsTheyEnd) {
  ProcessSet processes;
  ASSERT_TRUE(processes.Start(Shell("exit 3")).ok());
  ASSERT_TRUE(processes.Start(Shell("kill -9 $$")).ok());
  ASSERT_TRUE(processes.Start(Shell("while true; do sleep 100; done")).ok());
  EXPECT_EQ(processes.running(), 3);
  int seen = 0;
  while (processes.running() > 1) {
    for (const ProcessSet::End& end : processes.Wait(SteadyTime::InfiniteFuture())) {
      EXPECT_EQ(end.signaled, end.index == 1);
      EXPECT_EQ(end.code, end.index == 1 ? SIGKILL : 3);
      ++seen;
    }
  }
  EXPECT_EQ(seen, 2);
  EXPECT_TRUE(processes.Wait(SteadyNow()).empty()) << "the deadline is now, and one runs";
  processes.Signal(SIGTERM);
  const std::vector<ProcessSet::End> last = processes.Wait(SteadyTime::InfiniteFuture());
  ASSERT_EQ(last.size(), 1);
  EXPECT_EQ(last[0].index, 2);
  EXPECT_TRUE(last[0].signaled);
  EXPECT_EQ(last[0].code, SIGTERM);
  EXPECT_EQ(processes.running(), 0);
}

TEST(ProcessSetTest, Start_ProgramDoesNotExist_ReturnsError) {
  ProcessSet processes;
  const absl::Status status = processes.Start({"/no/such/program", {"program"}, {}, -1});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "executing /no/such/program: No such file or directory");
}

}  // namespace
}  // namespace ddprun
