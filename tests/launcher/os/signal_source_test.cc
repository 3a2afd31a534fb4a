#include "launcher/os/signal_source.h"

#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/launcher/os/process_testing.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

TEST(SignalSourceTest, Signal_OfThisAndAnotherProcess_SaysWhoSentIt) {
  auto loop = EventLoop::Create();
  auto source = SignalSource::Create({SIGTERM, SIGUSR1});
  ASSERT_TRUE(source.ok()) << source.status();
  kill(getpid(), SIGTERM);  // before Attach: retained
  std::vector<ReceivedSignal> seen;
  ASSERT_TRUE((*source)
                  ->Attach(loop->get(),
                           [&](const ReceivedSignal& signal) {
                             seen.push_back(signal);
                             (*loop)->Quit();
                           })
                  .ok());
  (*loop)->Run();
  ASSERT_EQ(seen.size(), 1);
  EXPECT_EQ(seen[0].number, SIGTERM);
  EXPECT_EQ(seen[0].sender, getpid());
  EXPECT_EQ(seen[0].sender_user, getuid());
  EXPECT_THAT(seen[0].Text(), ::testing::StartsWith("SIGTERM from process " + std::to_string(getpid()) + " ("));

  const Child child = MustSpawn(RequestFor({"/bin/sh", "-c", "kill -USR1 $PPID"}));
  (*loop)->Run();
  ASSERT_EQ(seen.size(), 2);
  EXPECT_EQ(seen[1].number, SIGUSR1);
  EXPECT_EQ(seen[1].sender, child.pid);
  WaitFor(child);
}

TEST(SignalSourceTest, SenderNamedSlurmstepd_IsSlurm) {
  // A real process with that name, which comes from its file.
  const testing::TempDir folder;
  const std::string stepd = folder.File("slurmstepd");
  std::filesystem::copy_file("/bin/sh", stepd);
  auto loop = EventLoop::Create();
  auto source = SignalSource::Create({SIGTERM});
  std::vector<ReceivedSignal> seen;
  ASSERT_TRUE((*source)->Attach(loop->get(), [&](const ReceivedSignal& signal) { seen.push_back(signal); }).ok());
  for (const std::string& sender : {stepd, std::string("/bin/sh")}) {
    // The sender lives until it has been examined.
    const Pipe hold;
    SpawnRequest request = RequestFor({sender, "-c", "kill -TERM $PPID; read line"});
    request.stdin_fd = hold.read.get();
    const Child child = MustSpawn(request);
    const size_t before = seen.size();
    ASSERT_TRUE(testing::Eventually([&] {
      (*source)->ReadAll();
      return seen.size() > before;
    }));
    kill(child.pid, SIGKILL);
    WaitFor(child);
  }
  EXPECT_TRUE(seen[0].FromSlurm());
  EXPECT_THAT(seen[0].Text(), ::testing::EndsWith("(slurmstepd)"));
  EXPECT_FALSE(seen[1].FromSlurm());
}

TEST(SignalSourceTest, ReadAll_TakesWhatHasComeWithoutTheLoop) {
  auto loop = EventLoop::Create();
  auto source = SignalSource::Create({SIGTERM, SIGUSR1, SIGUSR2});
  std::vector<int> seen;
  ASSERT_TRUE(
      (*source)->Attach(loop->get(), [&](const ReceivedSignal& signal) { seen.push_back(signal.number); }).ok());
  (*source)->ReadAll();
  EXPECT_TRUE(seen.empty());
  kill(getpid(), SIGUSR1);
  kill(getpid(), SIGTERM);
  (*source)->ReadAll();
  EXPECT_THAT(seen, ::testing::UnorderedElementsAre(SIGUSR1, SIGTERM));
}

TEST(SignalSourceTest, SeveralPending_AllArriveAndRealTimeOnesAreCounted) {
  auto loop = EventLoop::Create();
  auto source = SignalSource::Create({SIGTERM, SIGRTMIN});
  std::vector<int> seen;
  ASSERT_TRUE((*source)
                  ->Attach(loop->get(),
                           [&](const ReceivedSignal& signal) {
                             seen.push_back(signal.number);
                             if (seen.size() == 3) (*loop)->Quit();
                           })
                  .ok());
  for (const int signal : {SIGTERM, SIGTERM, SIGRTMIN, SIGRTMIN}) kill(getpid(), signal);
  (*loop)->Run();
  EXPECT_THAT(seen, ::testing::UnorderedElementsAre(SIGTERM, SIGRTMIN, SIGRTMIN));
}

TEST(SignalSourceTest, Callback_MayDestroyTheSource) {
  auto loop = EventLoop::Create();
  std::unique_ptr<SignalSource> source = *SignalSource::Create({SIGUSR2});
  ASSERT_TRUE(source->Attach(loop->get(), [&](const ReceivedSignal&) { (*loop)->Quit(); }).ok());
  kill(getpid(), SIGUSR2);
  (*loop)->Run();
  source.reset();
  kill(getpid(), SIGUSR2);  // stays blocked: harmless
  (*loop)->Post([&] { (*loop)->Quit(); });
  (*loop)->Run();
}

TEST(SignalSourceTest, Create_WhatNobodyCanHandle_IsRefused) {
  for (const int signal : {SIGKILL, SIGSTOP, 0, 32, 99}) {
    EXPECT_TRUE(absl::IsInvalidArgument(SignalSource::Create({signal}).status())) << signal;
  }
}

TEST(SignalSourceTest, HangUpIgnoredAtTheStart_StaysIgnored) {
  signal(SIGHUP, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigaddset(&none, SIGHUP);
  sigprocmask(SIG_UNBLOCK, &none, nullptr);
  auto loop = EventLoop::Create();
  auto source = SignalSource::Create({SIGHUP, SIGTERM});
  ASSERT_TRUE(source.ok());
  std::vector<int> seen;
  ASSERT_TRUE((*source)
                  ->Attach(loop->get(),
                           [&](const ReceivedSignal& signal) {
                             seen.push_back(signal.number);
                             if (signal.number == SIGTERM) (*loop)->Quit();
                           })
                  .ok());
  kill(getpid(), SIGHUP);
  kill(getpid(), SIGTERM);
  (*loop)->Run();
  EXPECT_EQ(seen, std::vector<int>{SIGTERM});
  signal(SIGHUP, SIG_DFL);
}

TEST(SignalSourceTest, Text_FromTheKernel) {
  ReceivedSignal signal;
  signal.number = SIGINT;
  EXPECT_EQ(signal.Text(), "SIGINT from the terminal or the kernel");
}

}  // namespace
}  // namespace ddprun::launcher
