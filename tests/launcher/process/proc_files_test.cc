#include "launcher/process/proc_files.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/child_watch.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

TEST(ProcFilesTest, Children_ZombieIncluded) {
  EXPECT_TRUE(ChildrenOfMainThread().empty());
  const Child child = MustSpawn(RequestFor({"/bin/true"}));
  ASSERT_TRUE(WaitUntilGone(child.pid));
  EXPECT_EQ(ChildrenOfMainThread(), std::vector<pid_t>{child.pid});
  EXPECT_TRUE(IsZombie(child.pid));
  EXPECT_FALSE(IsZombie(getpid()));
  WaitFor(child);
  EXPECT_FALSE(IsZombie(child.pid));
  EXPECT_TRUE(ChildrenOfMainThread().empty());
}

TEST(ProcFilesTest, ParentOf_NameWithBlanksAndBrackets_StillRead) {
  EXPECT_EQ(ParentOf(getpid()), getppid());
  ASSERT_EQ(prctl(PR_SET_NAME, "a) S 1 (b"), 0);
  EXPECT_EQ(ParentOf(getpid()), getppid());
  EXPECT_EQ(ParentOf(0), 0);
  EXPECT_EQ(ParentOf(-1), 0);
}

TEST(ProcFilesTest, CpuTimeOfSession_OtherSessions_DoNotCount) {
  Pipe input;
  SpawnRequest request =
      RequestFor({"/bin/sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo ready; read line"});
  request.stdin_fd = input.read.get();
  const auto [child, output] = SpawnTalker(request);
  ReadPids(output.get(), "ready");
  const absl::Duration used = CpuTimeOfSession(child.pid);
  EXPECT_GT(used, absl::ZeroDuration());
  EXPECT_EQ(CpuTimeOfSession(child.pid), used) << "it waits";
  input.write.reset();
  WaitFor(child);
  EXPECT_EQ(CpuTimeOfSession(child.pid), absl::ZeroDuration());
}

TEST(ProcFilesTest, AllProcesses_IncludesChildren) {
  EXPECT_THAT(AllProcesses(), ::testing::IsSupersetOf({getpid(), getppid()}));
  EXPECT_EQ(ReadSmallFile("/no/such/file"), "");
}

TEST(ProcFilesTest, DescendantsOf_ChildrenOfAnyThread_ParentsFirst) {
  Pipe input;
  SpawnRequest request = RequestFor({"/bin/sh", "-c", "sh -c 'echo inner $$; echo ready; read line'; true"});
  request.stdin_fd = input.read.get();
  const auto [child, output] = SpawnTalker(request);
  const pid_t inner = ReadPids(output.get(), "ready").find("inner")->second;
  pid_t of_thread = 0;
  Pipe end;
  std::thread([&] {
    of_thread = fork();
    char byte;
    if (of_thread == 0) _exit(read(end.read.get(), &byte, 1) == 1 ? 0 : 1);
    EXPECT_THAT(DescendantsOf(getpid(), 9), ::testing::UnorderedElementsAre(child.pid, inner, of_thread));
    EXPECT_EQ(write(end.write.get(), "", 1), 1);
    waitpid(of_thread, nullptr, 0);
  }).join();
  EXPECT_THAT(DescendantsOf(getpid(), 9), ::testing::ElementsAre(child.pid, inner));
  EXPECT_THAT(DescendantsOf(getpid(), 1), ::testing::ElementsAre(child.pid));
  EXPECT_THAT(DescendantsOf(inner, 9), ::testing::IsEmpty());
  input.write.reset();
  WaitFor(child);
  EXPECT_THAT(DescendantsOf(inner, 9), ::testing::IsEmpty());
}

TEST(ProcFilesTest, VariableOfProcess_WholeNameOnly) {
  Pipe input;
  SpawnRequest request = RequestFor({"/bin/sh", "-c", "echo ready; read line"});
  request.stdin_fd = input.read.get();
  request.environment = {"XID=wrong", "IDX=wrong", "ID=right=this", "ID=second"};
  const auto [child, output] = SpawnTalker(request);
  // A spawn returns shortly before the new program's environment is visible.
  ReadPids(output.get(), "ready");
  EXPECT_EQ(VariableOfProcess(child.pid, "ID"), "right=this");
  EXPECT_EQ(VariableOfProcess(child.pid, "D"), "");
  input.write.reset();
  ASSERT_TRUE(WaitUntilGone(child.pid));
  EXPECT_EQ(VariableOfProcess(child.pid, "ID"), "") << "the dead have none";
  WaitFor(child);
}

TEST(ProcFilesTest, SurvivesSignal_HandledOrIgnored) {
  EXPECT_FALSE(SurvivesSignal(getpid(), SIGUSR1));
  ASSERT_NE(signal(SIGUSR1, SIG_IGN), SIG_ERR);
  EXPECT_TRUE(SurvivesSignal(getpid(), SIGUSR1));
  ASSERT_NE(signal(SIGUSR1, [](int) {}), SIG_ERR);
  EXPECT_TRUE(SurvivesSignal(getpid(), SIGUSR1));
  EXPECT_FALSE(SurvivesSignal(getpid(), SIGUSR2));
  EXPECT_FALSE(SurvivesSignal(0, SIGUSR1)) << "no such process";
  signal(SIGUSR1, SIG_DFL);
}

TEST(ProcFilesTest, ProgramsBelowShell_ThroughShellsOnly) {
  const auto [shell, output] = SpawnTalker(RequestFor(
      {"/bin/sh", "-c",
       "sh -c 'sleep 1000; true' & "
       "python3 -c 'import signal, subprocess; print(\"helper\", subprocess.Popen([\"sleep\", \"1000\"]).pid); "
       "print(\"ready\", flush=True); signal.pause()' & wait"}));
  const pid_t helper = ReadPids(output.get(), "ready").find("helper")->second;
  std::vector<pid_t> below;
  const pid_t pid = shell.pid;
  EXPECT_TRUE(testing::Eventually([&] { return (below = ProgramsBelowShell(pid)).size() == 3; }))
      << "a shell, its program, Python";
  EXPECT_THAT(below, ::testing::Not(::testing::Contains(helper)));
  EXPECT_THAT(ProgramsBelowShell(ParentOf(helper)), ::testing::IsEmpty()) << "it is no shell";
  kill(-pid, SIGKILL);
  WaitFor(shell);
}

TEST(ProcessEndTest, ProcessEnd_CodeOrSignal_IsRead) {
  const ProcessEnd exited = ProcessEnd::FromWait(12, 7 << 8);
  EXPECT_EQ(exited.pid, 12);
  EXPECT_EQ(exited.Text(), "exited with code 7");
  EXPECT_EQ(exited.ExitCode(), 7);
  EXPECT_FALSE(exited.ok());
  EXPECT_TRUE(ProcessEnd::FromWait(12, 0).ok());
  const ProcessEnd killed = ProcessEnd::FromWait(12, SIGKILL);
  EXPECT_EQ(killed.Text(), "killed by SIGKILL (9)");
  EXPECT_EQ(killed.ExitCode(), 137);
  EXPECT_FALSE(killed.ok());
  EXPECT_EQ(ProcessEnd::FromWait(12, SIGSEGV | 0x80).Text(), "killed by SIGSEGV (11)") << "with a core dump";
}

using ::testing::HasSubstr;

class OomTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& content) {
    const std::filesystem::path file = dir_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << content;
  }

  const testing::TempDir dir_;
};

TEST_F(OomTest, Sample_CgroupV2_ReadsTheOwnGroup) {
  Write("/proc/self/cgroup", "0::/job/7\n");
  Write("/sys/fs/cgroup/job/7/memory.events", "low 0\nhigh 1\nmax 5\noom 4\noom_kill 3\noom_group_kill 1\n");
  Write("/proc/vmstat", "nr_free_pages 1\noom_kill 9\n");
  const OomSample sample = SampleOom(dir_.path());
  EXPECT_EQ(sample.in_cgroup, 3);
  EXPECT_EQ(sample.on_host, 9);
}

TEST_F(OomTest, Sample_CgroupV1_ReadsTheMemoryController) {
  EXPECT_FALSE(SampleOom(dir_.path()).in_cgroup.has_value()) << "nothing is readable";
  EXPECT_FALSE(SampleOom(dir_.path()).on_host.has_value());
  Write("/proc/self/cgroup", "5:cpu:/x\n4:memory:/job:8\n0::/\n");
  Write("/sys/fs/cgroup/memory/job:8/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  EXPECT_EQ(SampleOom(dir_.path()).in_cgroup, 2);
}

TEST_F(OomTest, Sample_ContainerWithTheHostsPath_ReadsTheMount) {
  Write("/proc/self/cgroup", "0::/kubepods/pod1/container2\n");
  Write("/sys/fs/cgroup/memory.events", "oom_kill 6\n");
  EXPECT_EQ(SampleOom(dir_.path()).in_cgroup, 6);
}

TEST_F(OomTest, Sample_ThisMachine_HasTheKernelsCount) {
  const OomSample before = SampleOom();
  std::optional<int64_t> counted;
  std::ifstream vmstat("/proc/vmstat");
  int64_t value;
  for (std::string name; vmstat >> name >> value;) {
    if (name == "oom_kill") counted = value;
  }
  const OomSample after = SampleOom();
  ASSERT_EQ(before.on_host.has_value(), counted.has_value());
  if (!counted) GTEST_SKIP() << "this kernel does not count them";
  EXPECT_LE(*before.on_host, *counted);
  EXPECT_GE(*after.on_host, *counted);
}

TEST_F(OomTest, Evidence_NamesCgroupOrHost) {
  EXPECT_EQ(OomEvidence({1, 5}, {1, 5}), "");
  EXPECT_EQ(OomEvidence({}, {1, 5}), "");
  EXPECT_THAT(OomEvidence({1, 5}, {2, 6}), HasSubstr("out of memory: the kernel killed 1 process(es) of this job's"));
  EXPECT_THAT(OomEvidence({1, 5}, {1, 7}), HasSubstr("perhaps out of memory: the kernel killed 2 process(es) on this"));
  EXPECT_THAT(OomEvidence({std::nullopt, 5}, {std::nullopt, 6}), HasSubstr("perhaps out of memory"));
}

}  // namespace

}  // namespace ddprun::launcher
