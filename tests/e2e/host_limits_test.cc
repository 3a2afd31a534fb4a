// Launchers on a host that stalls or refuses: output that has no reader, files that cannot be opened, and limits of
// files, processes and system calls.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"
#include "tests/launcher/process/process_testing.h"

namespace ddprun::testing {
namespace {

// A terminal or a pipe without a reader blocks neither the launcher nor its workers.

using launcher::Child;
using launcher::Pipe;
using launcher::SpawnRequest;
using launcher::UniqueFd;

// A full pipe.
Pipe FullPipe() {
  Pipe pipe;
  const int size = fcntl(pipe.write.get(), F_SETPIPE_SZ, 4096);
  const std::string filler(size, '.');
  EXPECT_EQ(write(pipe.write.get(), filler.data(), filler.size()), size);
  return pipe;
}

// A terminal whose output was stopped with Ctrl-S.
class StoppedTerminal {
 public:
  StoppedTerminal() : keeper_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    EXPECT_EQ(grantpt(keeper_.get()), 0);
    EXPECT_EQ(unlockpt(keeper_.get()), 0);
    terminal_.reset(open(ptsname(keeper_.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
    EXPECT_EQ(tcflow(terminal_.get(), TCOOFF), 0);
  }
  int fd() const { return terminal_.get(); }

 private:
  UniqueFd keeper_;
  UniqueFd terminal_;
};

class ConsoleTest : public ::testing::Test {
 protected:
  Child Start(std::vector<std::string> flags, int out, int err) {
    SpawnRequest request = launcher::RequestFor(Launcher::Command("launcher/ddprun", std::move(flags)));
    request.environment.push_back("LOGLEVEL=INFO");
    request.stdout_fd = out;
    request.stderr_fd = err;
    return MustSpawn(request);
  }

  // With `err` as standard error, the workers start nevertheless, and `signal` ends launcher and workers.
  void ExpectRunsAndEnds(int err, int signal) {
    const std::string up = folder_.File(absl::StrCat("up", signal));
    const Child launcher =
        Start(Standalone(2, {"--shutdown-timeout=0.5", "--redirects=3"},
                         absl::StrCat("echo $$ >> ", up, "; trap '' TERM INT; while :; do sleep 0.05; done")),
              -1, err);
    ASSERT_TRUE(Eventually([&] { return Lines(ReadFile(up)) == 2; })) << "the workers were not started";
    kill(launcher.pid, signal);
    EXPECT_EQ(WaitFor(launcher).ExitCode(), 128 + signal);
    const std::string pids = ReadFile(up);
    for (const size_t at : {size_t{0}, pids.find('\n') + 1}) EXPECT_FALSE(Alive(atoi(pids.c_str() + at)));
  }

  TempDir folder_;
};

TEST_F(ConsoleTest, Stderr_PipeFull_JobRunsAndEndsOnSignal) {
  const Pipe full = FullPipe();
  for (const int signal : {SIGTERM, SIGINT}) ExpectRunsAndEnds(full.write.get(), signal);
}

TEST_F(ConsoleTest, Stderr_TerminalStopped_JobRunsAndEndsOnSignal) {
  const StoppedTerminal terminal;
  for (const int signal : {SIGTERM, SIGINT}) ExpectRunsAndEnds(terminal.fd(), signal);
}

TEST_F(ConsoleTest, Stderr_TerminalStopped_FailedJobExitsWithItsCode) {
  const StoppedTerminal terminal;
  EXPECT_EQ(WaitFor(Start(Standalone(1, {}, "exit 7"), -1, terminal.fd())).ExitCode(), 7);
}

TEST_F(ConsoleTest, LogFile_SizeLimitReached_LauncherWarnsAndContinues) {
  Process launcher({"/bin/sh", "-c",
                    absl::StrCat("ulimit -f 100; exec launcher/ddprun --standalone --tee=3 --log-dir=", folder_.path(),
                                 " --no-python sh -c 'head -c 300000 /dev/zero | tr \\0 x; exit 7'")});
  EXPECT_EQ(launcher.Wait(), 7) << launcher.Err();
  EXPECT_EQ(Count(launcher.Err(), "stdout.log: File too large; some output is missing in it"), 1) << launcher.Err();
}

// Workers do not inherit the limit that the launcher raises for itself.
TEST_F(ConsoleTest, FileLimit_RaisedByLauncher_WorkersKeepOriginal) {
  Process launcher({"/bin/sh", "-c",
                    "ulimit -Sn 200; exec launcher/ddprun --standalone --no-python sh -c 'ulimit -Sn; "
                    "awk \"/open files/ {print \\$4}\" /proc/$PPID/limits; ulimit -Hn'"});
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(launcher.Out(), absl::StrCat("200\n", limit.rlim_max, "\n", limit.rlim_max, "\n"));
}

// The file system of --log-dir stalls while the launcher creates a round's log files: opening a FIFO for writing blocks
// until it has a reader.

// A node with log files in this folder. Its first worker fails on command; the log file of the second one cannot be
// opened until EndStall().
class StalledFilesTest : public ::testing::Test {
 protected:
  ~StalledFilesTest() override { close(reader_); }

  std::vector<std::string> LogFlags() const { return {"--redirects=3", "--log-dir=" + logs_.path()}; }
  std::string WaitFor(const std::string& what) const {
    return absl::StrCat("while [ ! -e ", folder_.File(what), " ]; do sleep 0.02; done; ");
  }
  void Tell(const std::string& what) const { Touch(folder_.File(what)); }

  void StallNextRound() {
    const std::string folder = std::filesystem::directory_iterator(logs_.path())->path().string() + "/attempt_1/0/";
    std::filesystem::create_directories(folder);
    file_ = folder + "stdout.log";
    ASSERT_EQ(mkfifo(file_.c_str(), 0600), 0);
  }
  void EndStall() { reader_ = open(file_.c_str(), O_RDONLY | O_NONBLOCK); }
  std::string Log() const {
    char text[4096] = {};
    return read(reader_, text, sizeof text - 1) < 0 ? "" : text;
  }

  TempDir logs_, folder_;

 private:
  std::string file_;
  int reader_ = -1;
};

TEST_F(StalledFilesTest, LogFiles_OpenStalls_NodeStaysAndWorkersStartLater) {
  const int port = FreePort();
  Rendezvousd server(port);
  const std::string first = absl::StrCat(kSayRank, "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then ");
  std::vector<std::string> flags = LogFlags();
  flags.push_back("--max-restarts=1");
  Launcher stalled(NodeFlags(port, "2", 1, flags, absl::StrCat(first, "exec sleep 1000; fi; ", WaitFor("end"))));
  Launcher other(NodeFlags(port, "2", 1, {"--max-restarts=1"},
                           absl::StrCat(first, WaitFor("fail"), "exit 5; fi; ",  // then longer than H
                                        "for i in $(seq 50); do sleep 0.1; done; echo ran for 5 s; ", WaitFor("end"))));
  ASSERT_TRUE(other.WaitForOut("attempt=0")) << other.Err();
  StallNextRound();
  Tell("fail");
  ASSERT_TRUE(other.WaitForOut("ran for 5 s")) << stalled.Err() << other.Err();
  EndStall();
  Tell("end");
  ExpectEnd({&stalled, &other});
  EXPECT_EQ(Count(other.Out(), "attempt="), 2) << other.Out() << other.Err();
  EXPECT_THAT(Log(), HasSubstr("attempt=1"));
}

TEST_F(StalledFilesTest, LogFiles_OpenStalls_SigtermEndsLauncher) {
  std::vector<std::string> flags = LogFlags();
  flags.push_back("--max-restarts=1");
  Launcher launcher(Standalone(1, flags, absl::StrCat(WaitFor("fail"), "exit 5")));
  ASSERT_TRUE(Eventually([&] { return !std::filesystem::is_empty(logs_.path()); }));
  StallNextRound();
  Tell("fail");
  ASSERT_TRUE(launcher.WaitForErr("exited with code 5")) << launcher.Err();
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM) << launcher.Err();
}

// Launchers and servers at the limit of processes and threads, and where a seccomp filter refuses system calls.

// Programs that run as a user without other processes, since the limit counts all of a user and does not bind root.
class ProcessLimitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
    // The other user may enter this folder.
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    std::filesystem::permissions(folder_, std::filesystem::perms(0755));
    for (const std::string program : {"launcher/ddprun", "rendezvous/daemon/rendezvousd"}) {
      std::filesystem::copy_file(program, std::filesystem::path(folder_) / std::filesystem::path(program).filename());
    }
  }
  ~ProcessLimitTest() override { std::filesystem::remove_all(folder_); }

  std::vector<std::string> Command(int limit, const std::string& program, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"/usr/bin/setpriv", "--reuid=54321", "--regid=54321", "--clear-groups",
                                         "prlimit", absl::StrCat("--nproc=", limit), folder_ + "/" + program});
    return arguments;
  }

  std::string folder_ = "/tmp/ddprun_limit_XXXXXX";
};

TEST_F(ProcessLimitTest, Launcher_ProcessLimit_RunsJobOrNamesLimit) {
  int failed = 0;
  for (int limit = 1; limit <= 12; ++limit) {
    Process launcher(Command(limit, "ddprun", Standalone(4, {}, "true")), {{"TMPDIR", "/tmp"}});
    const int code = launcher.Wait();
    EXPECT_THAT(code, ::testing::AnyOf(0, 1, 126)) << limit << ": " << launcher.Err();
    EXPECT_THAT(launcher.Err(), Not(HasSubstr("this is a bug"))) << limit;
    if (code == 0) continue;
    ++failed;
    EXPECT_THAT(launcher.Err(), HasSubstr(absl::StrCat("(ulimit -u: ", limit))) << limit;
  }
  EXPECT_GE(failed, 3) << "the limit has had no effect";
}

TEST_F(ProcessLimitTest, Server_ProcessLimit_ServesOrNamesLimit) {
  bool served = false;
  for (int limit = 1; !served && limit <= 64; ++limit) {
    Process server(Command(limit, "rendezvousd", {"--listen=127.0.0.1:0"}));
    served = server.WaitForOut("listening");
    if (served) server.Signal(SIGTERM);
    EXPECT_EQ(server.Wait(), served ? 0 : 1) << limit << ": " << server.Err();
    EXPECT_TRUE(served || absl::StrContains(server.Err(), absl::StrCat("(ulimit -u: ", limit))) << server.Err();
  }
  EXPECT_TRUE(served);
}

// Starts a launcher that gets EPERM from pidfd_open and pidfd_send_signal, as in older container runtimes. The filter
// applies to a thread and the processes that it starts.
std::unique_ptr<Launcher> StartWithoutPidfds(std::vector<std::string> arguments,
                                             std::map<std::string, std::string> environment = {}) {
  std::unique_ptr<Launcher> launcher;
  std::thread([&] {
    sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                             BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 1, 0),
                             BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_send_signal, 0, 1),
                             BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                             BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog filter{std::size(program), program};
    EXPECT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    EXPECT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
    launcher = std::make_unique<Launcher>(std::move(arguments), std::move(environment));
  }).join();
  return launcher;
}

TEST(SeccompTest, Pidfds_Refused_JobRunsWithoutPreload) {
  EXPECT_EQ(StartWithoutPidfds(Standalone(2, {}, "exit 3"))->Wait(), 3);
  const auto preload =
      StartWithoutPidfds({"--standalone", "--preload=json", "-m", "this"}, {{"PYTHON_EXEC", "python3"}});
  EXPECT_EQ(preload->Wait(), 0) << preload->Err();
  EXPECT_THAT(preload->Out(), HasSubstr("Beautiful is better"));
  EXPECT_THAT(preload->Err(), HasSubstr("--preload has no effect: pidfd_open: Operation not permitted"));
}

TEST(SeccompTest, Pidfds_RefusedAndLauncherKilled_DescendantsEnd) {
  const auto launcher = StartWithoutPidfds(Standalone(1, {}, "env -i setsid sleep 1000 & echo \"up $! .\"; wait"));
  ASSERT_TRUE(launcher->WaitForOut(" .\n")) << launcher->Err();
  const pid_t orphan = atoi(launcher->Out().c_str() + 3);
  launcher->Signal(SIGKILL);
  EXPECT_EQ(launcher->Wait(), 128 + SIGKILL);
  EXPECT_TRUE(Eventually([&] { return !Alive(orphan); }));
}

}  // namespace
}  // namespace ddprun::testing
