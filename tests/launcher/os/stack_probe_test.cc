#include "launcher/os/stack_probe.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "launcher/os/event_loop.h"
#include "launcher/os/proc_files.h"
#include "worker_contract/crash_report.h"

namespace ddprun::launcher {
namespace {

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

TEST_F(StackProbeTest, ProcessThatReports_WritesItsOwnStackAndGoesOn) {
  const WaitingChild child(Kind::kReports);
  for (int i = 0; i < 3; ++i) {
    const std::string text = Probe(child.pid());
    EXPECT_EQ(text.rfind("main thread: ", 0), 0u) << text;
    EXPECT_NE(text.find("Native stack (most recent call first):\n  #0 0x"), std::string::npos) << text;
    EXPECT_TRUE(child.Runs());
  }
}

TEST_F(StackProbeTest, ProcessWithoutAHandler_IsNotHarmed) {
  const WaitingChild child(Kind::kPlain);
  const std::string text = Probe(child.pid());
  EXPECT_EQ(text.rfind("main thread: ", 0), 0u) << text;
  EXPECT_EQ(text.find("Native stack"), std::string::npos) << text;
  EXPECT_TRUE(child.Runs());
}

TEST_F(StackProbeTest, StoppedProcess_IsSaidToBeStopped) {
  const WaitingChild child(Kind::kReports);
  kill(child.pid(), SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(child.pid(), &status, WUNTRACED), child.pid());
  EXPECT_EQ(Probe(child.pid()).rfind("main thread: T (stopped)", 0), 0u);
  const std::string state = ReadSmallFile("/proc/" + std::to_string(child.pid()) + "/status");
  EXPECT_NE(state.find("SigPnd:\t0000000000000000\n"), std::string::npos) << "it is not asked: " << state;
}

TEST_F(StackProbeTest, NoSuchProcess_NothingIsFound) {
  const pid_t gone = [] {
    const WaitingChild child(Kind::kPlain);
    return child.pid();
  }();
  EXPECT_EQ(Probe(gone), "\n");
}

}  // namespace
}  // namespace ddprun::launcher
