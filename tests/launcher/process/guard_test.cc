#include "launcher/process/guard.h"

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "launcher/process/proc_files.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

using Pids = std::multimap<std::string, pid_t>;

// A mini_launcher and the pids it printed.
struct Launcher {
  Child child;
  UniqueFd output;
  Pids pids;  // "guard", "launcher", then those of the workers
};

// Starts `argv`, a mini_launcher with `workers` workers of tests/testbin/family.cc, and reads until all are in place.
Launcher Start(std::vector<std::string> argv, int workers) {
  Talker talker = SpawnTalker(RequestFor(std::move(argv)));
  Launcher launcher{std::move(talker.child), std::move(talker.output), {}};
  for (int i = 0; i < workers; ++i) launcher.pids.merge(ReadPids(launcher.output.get(), "ready"));
  return launcher;
}

void ExpectAllGone(const Pids& pids) {
  for (const auto& [kind, pid] : pids) EXPECT_TRUE(WaitUntilGone(pid)) << kind << " " << pid << " lives on";
}

Launcher StartOne() { return Start({TestProgram("mini_launcher"), "1", TestProgram("family")}, 1); }

void KillAndExpectAllGone(Launcher* launcher) {
  kill(launcher->child.pid, SIGKILL);
  WaitFor(launcher->child);
  ExpectAllGone(launcher->pids);
}

TEST(GuardTest, LauncherIdForWorkers_OuterIdsAreKept) {
  EXPECT_EQ(LauncherIdForWorkers("", "b"), "b");
  EXPECT_EQ(LauncherIdForWorkers("a", "b"), "a:b");
  EXPECT_TRUE(NamesLauncher("a:b", "a"));
  EXPECT_TRUE(NamesLauncher("a:b", "b"));
  EXPECT_FALSE(NamesLauncher("ab:b2", "b"));
  EXPECT_FALSE(NamesLauncher("", ""));
  EXPECT_FALSE(NamesLauncher("a", ""));
}

TEST(GuardTest, LauncherKilled_WorkersAndTheirDescendantsAreKilled) {
  Launcher launcher = Start({TestProgram("mini_launcher"), "3", TestProgram("family")}, 3);
  EXPECT_EQ(launcher.pids.count("session"), 3);
  EXPECT_EQ(launcher.pids.count("daemon"), 3);
  KillAndExpectAllGone(&launcher);
  // No process holds the caller's pipe any more, in particular not the guard.
  ReadToEnd(launcher.output.get());
}

TEST(GuardTest, GroupKilled_OnlyWorkersOfThisLauncherAreKilled) {
  Launcher first = StartOne(), second = StartOne();
  kill(-first.child.pid, SIGKILL);
  KillAndExpectAllGone(&first);
  for (const auto& [kind, pid] : second.pids) EXPECT_EQ(kill(pid, 0), 0) << kind;
  KillAndExpectAllGone(&second);
}

TEST(GuardTest, NestedLaunchers_OuterKilled_InnerOnesAreKilled) {
  const std::string mini = TestProgram("mini_launcher");
  Launcher launcher = Start({mini, "1", mini, "2", TestProgram("family")}, 2);
  EXPECT_EQ(launcher.pids.count("guard"), 2);
  KillAndExpectAllGone(&launcher);
}

TEST(GuardTest, NestedLaunchers_InnerKilled_OuterReturnsItsCode) {
  const std::string mini = TestProgram("mini_launcher");
  Launcher launcher = Start({mini, "1", mini, "1", TestProgram("family")}, 1);
  for (auto [entry, end] = launcher.pids.equal_range("launcher"); entry != end; ++entry) {
    if (entry->second != launcher.child.pid) kill(entry->second, SIGKILL);
  }
  EXPECT_EQ(WaitFor(launcher.child).Text(), "exited with code 137");
  ExpectAllGone(launcher.pids);
}

TEST(GuardTest, CleanExit_GuardEndsAndIsReaped) {
  ProcessEnd end;
  const std::string output = OutputOf(RequestFor({TestProgram("mini_launcher"), "2", "/bin/sh", "-c", "exit 3"}), &end);
  EXPECT_EQ(end.code, 3);
  const pid_t guard = atoi(output.c_str() + strlen("guard "));
  ASSERT_GT(guard, 0) << output;
  EXPECT_EQ(kill(guard, 0), -1) << "the guard is still there";
}

TEST(GuardTest, CleanExit_OrphansAreSwept) {
  Launcher launcher = Start({TestProgram("mini_launcher"), "2", TestProgram("family")}, 2);
  kill(launcher.child.pid, SIGTERM);
  EXPECT_EQ(WaitFor(launcher.child).Text(), "exited with code 143");
  ExpectAllGone(launcher.pids);
}

// Returns the guards of a launcher: its children with that name.
std::vector<pid_t> GuardsOf(pid_t launcher) {
  std::vector<pid_t> guards;
  for (const pid_t pid : AllProcesses()) {
    const std::string folder = absl::StrCat("/proc/", pid);
    const std::string status = ReadSmallFile(folder + "/status");
    if (ReadSmallFile(folder + "/comm") == "ddprun-guard\n" &&
        absl::StrContains(status, absl::StrCat("\nPPid:\t", launcher, "\n"))) {
      guards.push_back(pid);
    }
  }
  return guards;
}

TEST(GuardTest, GuardKilled_IsReplaced) {
  Launcher launcher = StartOne();
  for (int i = 0; i < 3; ++i) {
    const pid_t before = GuardsOf(launcher.child.pid).at(0);
    kill(before, SIGKILL);
    ASSERT_TRUE(testing::Eventually([&] {
      const std::vector<pid_t> now = GuardsOf(launcher.child.pid);
      return now.size() == 1 && now[0] != before;
    }));
    launcher.pids.emplace("guard", GuardsOf(launcher.child.pid)[0]);
  }
  KillAndExpectAllGone(&launcher);
  ReadToEnd(launcher.output.get());  // the last guard holds no descriptor of it
}

TEST(GuardTest, Dismiss_GuardIsStopped_IsKilled) {
  auto guard = Guard::Start("stopped");
  ASSERT_TRUE(guard.ok()) << guard.status();
  const pid_t pid = guard->pid();
  kill(pid, SIGSTOP);
  // More than its socket buffers.
  for (int i = 0; i < 10'000; ++i) guard->KillWorkersAt(SteadyNow() + absl::Hours(i));
  guard->Dismiss();
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST(GuardTest, GuardKilled_LauncherSucceeds) {
  Launcher launcher = StartOne();
  kill(launcher.pids.find("guard")->second, SIGKILL);
  ASSERT_TRUE(WaitUntilGone(launcher.pids.find("guard")->second));
  EXPECT_EQ(kill(launcher.pids.find("worker")->second, SIGUSR1), 0);
  EXPECT_EQ(WaitFor(launcher.child).ExitCode(), 128 + SIGUSR1);
  ExpectAllGone(launcher.pids);
}

// A sleeping worker of launcher `id`.
Child StartSleeper(const std::string& id) {
  SpawnRequest request = RequestFor({"/bin/sleep", "1000"});
  request.environment.push_back("DDPRUN_LAUNCHER_ID=" + id);
  return MustSpawn(request);
}

TEST(GuardTest, KillWorkersAt_Deadline_KillsWorkersAndContinues) {
  auto guard = Guard::Start("hanging");
  ASSERT_TRUE(guard.ok()) << guard.status();
  for (int round = 0; round < 2; ++round) {
    const pid_t neighbour = fork();  // in this process's session
    if (neighbour == 0) {
      pause();
      _exit(0);
    }
    const Child worker = StartSleeper("hanging"), changed = StartSleeper("");
    guard->KillWorkersAt(SteadyNow() + absl::Milliseconds(20));
    EXPECT_EQ(WaitFor(worker).Text(), "killed by SIGKILL (9)");
    EXPECT_EQ(WaitFor(changed).Text(), "killed by SIGKILL (9)") << "it descends from the launcher";
    EXPECT_EQ(kill(neighbour, SIGTERM), 0);
    int status = 0;
    waitpid(neighbour, &status, 0);
    EXPECT_EQ(WTERMSIG(status), SIGTERM);
    guard->KillWorkersAt(SteadyTime::InfiniteFuture());
  }
}

TEST(GuardTest, KillWorkersAt_ChildBeforeExec_IsKilled) {
  auto guard = Guard::Start("slow");
  ASSERT_TRUE(guard.ok()) << guard.status();
  guard->KillWorkersAt(SteadyNow());
  for (int i = 0; i < 3; ++i) {
    // The child waits at its gate, with the environment of this process.
    absl::StatusOr<Child> child = CreateChild(RequestFor({"/bin/sleep", "1000"}));
    ASSERT_TRUE(child.ok()) << child.status();
    EXPECT_EQ(WaitFor(*child).Text(), "killed by SIGKILL (9)");
  }
  guard->KillWorkersAt(SteadyTime::InfiniteFuture());
  guard->Dismiss();
}

TEST(GuardTest, KillWorkersAt_CalledAgain_ReplacesTheDeadline) {
  auto guard = Guard::Start("late");
  ASSERT_TRUE(guard.ok()) << guard.status();
  const Child worker = StartSleeper("late");
  guard->KillWorkersAt(SteadyNow() + absl::Hours(1));
  guard->KillWorkersAt(SteadyTime::InfiniteFuture());
  guard->Dismiss();  // the guard has read everything by now
  kill(worker.pid, SIGTERM);
  EXPECT_EQ(WaitFor(worker).ExitCode(), 128 + SIGTERM);
}

TEST(GuardTest, Process_HasNoDescriptorsAndIgnoresSessionSignals) {
  Pipe held;  // something inheritable that the guard must not keep open
  auto guard = Guard::Start("some id");
  ASSERT_TRUE(guard.ok()) << guard.status();
  const std::string folder = "/proc/" + std::to_string(guard->pid());
  held.write.reset();
  char byte;
  ASSERT_TRUE(WaitReadable(held.read.get())) << "the guard holds the pipe";
  EXPECT_EQ(read(held.read.get(), &byte, 1), 0);
  // The guard closes its descriptors last, so all of its setup is done by now.
  EXPECT_EQ(ReadSmallFile(folder + "/comm"), "ddprun-guard\n");
  char link[64] = "";
  for (const char* fd : {"/fd/0", "/fd/1", "/fd/2"}) {
    ASSERT_GT(readlink((folder + fd).c_str(), link, sizeof(link) - 1), 0) << fd;
    EXPECT_STREQ(link, "/dev/null");
    memset(link, 0, sizeof(link));
  }
  ASSERT_GT(readlink((folder + "/cwd").c_str(), link, sizeof(link) - 1), 0);
  EXPECT_STREQ(link, "/");
  EXPECT_EQ(getsid(guard->pid()), guard->pid());
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) kill(guard->pid(), signal);
  int status = 0;
  EXPECT_EQ(waitpid(guard->pid(), &status, WNOHANG), 0) << "it has ended";
  guard->Dismiss();
  EXPECT_EQ(waitpid(guard->pid(), &status, WNOHANG), -1);
}

}  // namespace
}  // namespace ddprun::launcher
