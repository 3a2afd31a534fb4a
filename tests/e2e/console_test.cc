// A terminal or a pipe without a reader blocks neither the launcher nor its workers.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <termios.h>
#include <unistd.h>

#include "tests/e2e/launch.h"
#include "tests/launcher/process/process_testing.h"

namespace ddprun::testing {
namespace {

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

TEST_F(ConsoleTest, StderrPipeIsFull_JobRunsAndSignalsEndIt) {
  const Pipe full = FullPipe();
  for (const int signal : {SIGTERM, SIGINT}) ExpectRunsAndEnds(full.write.get(), signal);
}

TEST_F(ConsoleTest, TerminalIsStopped_JobRunsAndSignalsEndIt) {
  const StoppedTerminal terminal;
  for (const int signal : {SIGTERM, SIGINT}) ExpectRunsAndEnds(terminal.fd(), signal);
}

TEST_F(ConsoleTest, TerminalIsStopped_FailedJobEndsWithItsCode) {
  const StoppedTerminal terminal;
  EXPECT_EQ(WaitFor(Start(Standalone(1, {}, "exit 7"), -1, terminal.fd())).ExitCode(), 7);
}

TEST_F(ConsoleTest, LogFileReachesTheSizeLimit_LauncherGoesOnAndSaysSo) {
  Process launcher({"/bin/sh", "-c",
                    absl::StrCat("ulimit -f 100; exec launcher/ddprun --standalone --tee=3 --log-dir=", folder_.path(),
                                 " --no-python sh -c 'head -c 300000 /dev/zero | tr \\0 x; exit 7'")});
  EXPECT_EQ(launcher.Wait(), 7) << launcher.Err();
  EXPECT_EQ(Count(launcher.Err(), "stdout.log: File too large; some output is missing in it"), 1) << launcher.Err();
}

// Workers do not inherit the limit that the launcher raises for itself.
TEST_F(ConsoleTest, FileLimit_WorkersHaveTheOneThatTheLauncherWasStartedWith) {
  Process launcher({"/bin/sh", "-c",
                    "ulimit -Sn 200; exec launcher/ddprun --standalone --no-python sh -c 'ulimit -Sn; "
                    "awk \"/open files/ {print \\$4}\" /proc/$PPID/limits; ulimit -Hn'"});
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(launcher.Out(), absl::StrCat("200\n", limit.rlim_max, "\n", limit.rlim_max, "\n"));
}

}  // namespace
}  // namespace ddprun::testing
