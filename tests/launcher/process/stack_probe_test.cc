#include "launcher/process/stack_probe.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "launcher/io/event_loop.h"
#include "launcher/process/proc_files.h"
#include "worker_contract/crash_report.h"

namespace ddprun::launcher {
namespace {

using ::testing::StartsWith;

enum class Kind { kReports, kPlain };

// A child that waits for ever. It is ready when this returns.
class WaitingChild {
 public:
  explicit WaitingChild(Kind kind) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    pid_ = fork();
    if (pid_ == 0) {
      if (kind == Kind::kReports) worker_contract::ReportCrashes(nullptr);
      close(ready[0]);
      close(ready[1]);
      while (true) pause();
    }
    close(ready[1]);
    char byte;
    EXPECT_EQ(read(ready[0], &byte, 1), 0);
    close(ready[0]);
  }
  ~WaitingChild() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  bool Runs() const { return waitpid(pid_, nullptr, WNOHANG) == 0; }

 private:
  pid_t pid_ = 0;
};

class StackProbeTest : public ::testing::Test {
 protected:
  StackProbeTest() { setenv("PATH", "/nonexistent", 1); }  // no tool helps

  std::string Probe(pid_t pid) {
    std::string found;
    const std::unique_ptr<EventLoop> loop = *EventLoop::Create();
    const StackProbe probe(loop.get(), pid, [&](const std::string& text) {
      found = text;
      loop->Quit();
    });
    loop->Run();
    return found;
  }
};

TEST_F(StackProbeTest, ProcessThatReports_WritesItsOwnStack_AndNoneIsHarmed) {
  const WaitingChild reports(Kind::kReports), plain(Kind::kPlain);
  for (const WaitingChild* child : {&reports, &reports, &reports, &plain}) {
    const std::string text = Probe(child->pid());
    EXPECT_THAT(text, StartsWith("main thread: "));
    EXPECT_EQ(text.find("Native stack (most recent call first):\n  #0 0x") != text.npos, child == &reports) << text;
    EXPECT_TRUE(child->Runs());
  }
}

TEST_F(StackProbeTest, StoppedProcess_IsReportedAsStopped) {
  const WaitingChild child(Kind::kReports);
  kill(child.pid(), SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(child.pid(), &status, WUNTRACED), child.pid());
  EXPECT_THAT(Probe(child.pid()), StartsWith("main thread: T (stopped)"));
  EXPECT_THAT(ReadSmallFile("/proc/" + std::to_string(child.pid()) + "/status"),
              ::testing::HasSubstr("SigPnd:\t0000000000000000\n"))
      << "it is not asked";
}

TEST_F(StackProbeTest, NoSuchProcess_HasNoStacks) {
  const pid_t gone = [] {
    const WaitingChild child(Kind::kPlain);
    return child.pid();
  }();
  EXPECT_EQ(Probe(gone), "\n");
}

}  // namespace
}  // namespace ddprun::launcher
