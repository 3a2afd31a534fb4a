#include "launcher/process/signal_source.h"

#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

// A source of these signals on a loop, which ends after `quit_after` signals.
class SignalSourceTest : public ::testing::Test {
 protected:
  void Create(const std::vector<int>& signals) {
    auto source = SignalSource::Create(signals);
    ASSERT_TRUE(source.ok()) << source.status();
    source_ = *std::move(source);
  }
  void Attach(size_t quit_after = 1) {
    const auto on_signal = [this, quit_after](const ReceivedSignal& signal) {
      seen_.push_back(signal);
      numbers_.push_back(signal.number);
      if (seen_.size() >= quit_after) loop_->Quit();
    };
    ASSERT_TRUE(source_->Attach(loop_.get(), on_signal).ok());
  }

  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  std::unique_ptr<SignalSource> source_;
  std::vector<ReceivedSignal> seen_;
  std::vector<int> numbers_;
};

TEST_F(SignalSourceTest, Signal_FromAnyProcess_NamesTheSender) {
  Create({SIGTERM, SIGUSR1});
  kill(getpid(), SIGTERM);  // before Attach: retained
  Attach();
  loop_->Run();
  ASSERT_THAT(numbers_, ::testing::ElementsAre(SIGTERM));
  EXPECT_EQ(seen_[0].sender, getpid());
  EXPECT_EQ(seen_[0].sender_user, getuid());
  EXPECT_THAT(seen_[0].Text(), ::testing::StartsWith("SIGTERM from process " + std::to_string(getpid()) + " ("));

  const Child child = MustSpawn(RequestFor({"/bin/sh", "-c", "kill -USR1 $PPID"}));
  loop_->Run();
  ASSERT_THAT(numbers_, ::testing::ElementsAre(SIGTERM, SIGUSR1));
  EXPECT_EQ(seen_[1].sender, child.pid);
  WaitFor(child);
}

TEST_F(SignalSourceTest, FromSlurm_SenderNamedSlurmstepd_IsTrue) {
  // A real process with that name, which comes from its file.
  const testing::TempDir folder;
  const std::string stepd = folder.File("slurmstepd");
  std::filesystem::copy_file("/bin/sh", stepd);
  Create({SIGTERM});
  Attach();
  for (const std::string& sender : {stepd, std::string("/bin/sh")}) {
    // The sender lives until it has been examined.
    const Pipe hold;
    SpawnRequest request = RequestFor({sender, "-c", "kill -TERM $PPID; read line"});
    request.stdin_fd = hold.read.get();
    const Child child = MustSpawn(request);
    loop_->Run();
    kill(child.pid, SIGKILL);
    WaitFor(child);
  }
  EXPECT_TRUE(seen_.at(0).FromSlurm());
  EXPECT_THAT(seen_[0].Text(), ::testing::EndsWith("(slurmstepd)"));
  EXPECT_FALSE(seen_.at(1).FromSlurm());
}

TEST_F(SignalSourceTest, ReadAll_OutsideTheLoop_DeliversPendingSignals) {
  Create({SIGTERM, SIGUSR1, SIGUSR2});
  Attach();
  source_->ReadAll();
  EXPECT_TRUE(seen_.empty());
  kill(getpid(), SIGUSR1);
  kill(getpid(), SIGTERM);
  source_->ReadAll();
  EXPECT_THAT(numbers_, ::testing::UnorderedElementsAre(SIGUSR1, SIGTERM));
}

TEST_F(SignalSourceTest, Pending_SeveralSignals_AllArrive) {
  Create({SIGTERM, SIGRTMIN});
  Attach(3);
  for (const int signal : {SIGTERM, SIGTERM, SIGRTMIN, SIGRTMIN}) kill(getpid(), signal);
  loop_->Run();
  EXPECT_THAT(numbers_, ::testing::UnorderedElementsAre(SIGTERM, SIGRTMIN, SIGRTMIN));
}

TEST_F(SignalSourceTest, Callback_DestroysTheSource_IsAllowed) {
  Create({SIGUSR2});
  Attach();
  kill(getpid(), SIGUSR2);
  loop_->Run();
  source_.reset();
  kill(getpid(), SIGUSR2);  // stays blocked: harmless
  loop_->Post([&] { loop_->Quit(); });
  loop_->Run();
}

TEST_F(SignalSourceTest, Create_SignalThatCannotBeHandled_IsAnError) {
  for (const int signal : {SIGKILL, SIGSTOP, 0, 32, 99}) {
    EXPECT_TRUE(absl::IsInvalidArgument(SignalSource::Create({signal}).status())) << signal;
  }
}

TEST_F(SignalSourceTest, HangUpIgnoredAtTheStart_StaysIgnored) {
  signal(SIGHUP, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigaddset(&none, SIGHUP);
  sigprocmask(SIG_UNBLOCK, &none, nullptr);
  Create({SIGHUP, SIGTERM});
  Attach();
  kill(getpid(), SIGHUP);
  kill(getpid(), SIGTERM);
  loop_->Run();
  EXPECT_THAT(numbers_, ::testing::ElementsAre(SIGTERM));
  signal(SIGHUP, SIG_DFL);
}

TEST_F(SignalSourceTest, Text_FromTheKernel) {
  ReceivedSignal signal;
  signal.number = SIGINT;
  EXPECT_EQ(signal.Text(), "SIGINT from the terminal or the kernel");
}

}  // namespace
}  // namespace ddprun::launcher
