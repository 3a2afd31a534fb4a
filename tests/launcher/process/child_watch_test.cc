#include "launcher/process/child_watch.h"

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "launcher/process/orphan_sweeper.h"
#include "launcher/process/proc_files.h"
#include "tests/launcher/process/process_testing.h"

namespace ddprun::launcher {
namespace {

class ChildWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loop = EventLoop::Create();
    ASSERT_TRUE(loop.ok());
    loop_ = *std::move(loop);
    auto watch = ChildWatch::Create(loop_.get(), [this](std::vector<ProcessEnd> ends) {
      ASSERT_FALSE(ends.empty());
      ++batches_;
      for (const ProcessEnd& end : ends) ends_[end.pid] = end;
      order_.insert(order_.end(), ends.begin(), ends.end());
      if (watch_->empty()) loop_->Quit();
    });
    ASSERT_TRUE(watch.ok());
    watch_ = *std::move(watch);
  }

  pid_t Start(SpawnRequest request) { return Watch(MustSpawn(request)); }
  pid_t Watch(Child child) {
    const pid_t pid = child.pid;
    EXPECT_TRUE(watch_->Watch(std::move(child)).ok());
    return pid;
  }

  // Starts `argv` and waits until it has printed "ready".
  pid_t StartReady(std::vector<std::string> argv, std::multimap<std::string, pid_t>* pids = nullptr) {
    Talker talker = SpawnTalker(RequestFor(std::move(argv)));
    const auto read = ReadPids(talker.output.get(), "ready");
    if (pids != nullptr) *pids = read;
    return Watch(std::move(talker.child));
  }

  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<ChildWatch> watch_;
  int batches_ = 0;
  std::map<pid_t, ProcessEnd> ends_;
  std::vector<ProcessEnd> order_;
};

TEST_F(ChildWatchTest, TwelveWorkers_EachEndIsReportedOnce) {
  std::map<pid_t, int> codes;
  for (int i = 0; i < 12; ++i) codes[Start(RequestFor({TestProgram("end_with"), "exit", absl::StrCat(i)}))] = i;
  loop_->Run();
  ASSERT_EQ(order_.size(), 12);
  for (const auto& [pid, code] : codes) {
    EXPECT_EQ(ends_.at(pid).code, code);
  }
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "one was not reaped";
}

TEST_F(ChildWatchTest, SeveralDead_InOneTurn_ReportedTogetherInOrder) {
  std::vector<pid_t> pids;
  for (int i = 0; i < 5; ++i) pids.push_back(StartReady({TestProgram("ignore_term")}));
  // In reverse order of starting, each one dead before the next is killed.
  for (auto pid = pids.rbegin(); pid != pids.rend(); ++pid) {
    ASSERT_TRUE(watch_->Signal(*pid, SIGKILL));
    ASSERT_TRUE(WaitUntilGone(*pid));
  }
  loop_->Run();
  EXPECT_EQ(batches_, 1);
  ASSERT_EQ(order_.size(), 5);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(order_[i].pid, pids[4 - i]);
}

TEST_F(ChildWatchTest, Stopped_SigtermWaitsForSigcont_SigkillDoesNot) {
  const Pipe input;  // has no data
  SpawnRequest request = RequestFor({"/bin/cat"});
  request.stdin_fd = input.read.get();
  const pid_t cat = Start(request), stubborn = StartReady({TestProgram("ignore_term")});
  for (const pid_t pid : {cat, stubborn}) {
    kill(pid, SIGSTOP);
    siginfo_t info;
    ASSERT_EQ(waitid(P_PID, pid, &info, WSTOPPED), 0);
    EXPECT_TRUE(watch_->Signal(pid, SIGTERM));
  }
  EXPECT_TRUE(watch_->Signal(cat, SIGCONT));
  EXPECT_TRUE(watch_->SignalGroup(stubborn, SIGKILL));
  loop_->Run();
  EXPECT_EQ(ends_.at(cat).Text(), "killed by SIGTERM (15)");
  EXPECT_EQ(ends_.at(stubborn).Text(), "killed by SIGKILL (9)") << "it ignores SIGTERM";
}

TEST_F(ChildWatchTest, LeaderEnds_ItsGroupIsKilled) {
  std::multimap<std::string, pid_t> pids;
  const pid_t pid = StartReady({TestProgram("family"), "5"}, &pids);
  loop_->Run();
  EXPECT_EQ(ends_.at(pid).code, 5);
  EXPECT_TRUE(WaitUntilGone(pids.find("group")->second));
  for (const char* other : {"session", "daemon", "stranger"}) {
    EXPECT_EQ(kill(pids.find(other)->second, SIGKILL), 0) << other << " is not in the group";
  }
}

TEST_F(ChildWatchTest, Signal_EndsAWrapper_ItsProgramReceivesTheSignal) {
  ASSERT_TRUE(BecomeSubreaper().ok());
  const Talker wrapper = SpawnTalker(
      RequestFor({"/bin/sh", "-c",
                  "sh -c 'trap \"echo saved; exit\" TERM; "
                  "sh -c \"trap \\\"echo helper; exit\\\" TERM; echo ready; while :; do sleep 0.01; done\" & "
                  "while :; do sleep 0.01; done'; echo went on"}));
  ReadPids(wrapper.output.get(), "ready");
  const pid_t pid = wrapper.child.pid;
  ASSERT_TRUE(watch_->Watch(Child{pid, OpenPidfd(pid), StartGate()}).ok());
  ASSERT_TRUE(watch_->Signal(pid, SIGTERM));
  loop_->Run();
  EXPECT_EQ(ends_.at(pid).Text(), "killed by SIGTERM (15)");
  EXPECT_EQ(ReadToEnd(wrapper.output.get()), "saved\nhelper\n") << "in this order, and all have ended";
}

TEST_F(ChildWatchTest, SignalGroup_WrapperHasEnded_KillsItsProgram) {
  ASSERT_TRUE(BecomeSubreaper().ok());
  const pid_t pid =
      StartReady({"/bin/sh", "-c", "sh -c 'trap : TERM; echo ready; while :; do sleep 0.01; done'; true"});
  ASSERT_TRUE(watch_->Signal(pid, SIGTERM));
  ASSERT_TRUE(WaitUntilGone(pid));
  loop_->Post([this] { loop_->Post([this] { loop_->Post([this] { loop_->Quit(); }); }); });
  loop_->Run();
  EXPECT_EQ(batches_, 0) << "its program lives";
  EXPECT_TRUE(watch_->SignalGroup(pid, SIGKILL));
  loop_->Run();
  EXPECT_EQ(ends_.at(pid).Text(), "killed by SIGTERM (15)");
}

TEST_F(ChildWatchTest, Signal_AfterTheReport_ReturnsFalse) {
  const pid_t pid = Start(RequestFor({"/bin/true"}));
  loop_->Run();
  EXPECT_FALSE(watch_->Signal(pid, SIGKILL));
  EXPECT_FALSE(watch_->SignalGroup(pid, SIGKILL));
}

TEST_F(ChildWatchTest, Signal_DeadButNotReported_ReturnsTrue) {
  const pid_t pid = Start(RequestFor({"/bin/true"}));
  ASSERT_TRUE(WaitUntilGone(pid));
  EXPECT_TRUE(watch_->Signal(pid, SIGTERM));
  EXPECT_TRUE(watch_->SignalGroup(pid, SIGTERM));
  loop_->Run();
  EXPECT_TRUE(ends_.at(pid).ok());
}

TEST_F(ChildWatchTest, Callback_StartsAnotherChild_IsWatched) {
  int started = 0;
  auto loop = EventLoop::Create();
  std::unique_ptr<ChildWatch> watch;
  auto created = ChildWatch::Create(loop->get(), [&](std::vector<ProcessEnd> ends) {
    EXPECT_EQ(ends.size(), 1);
    if (++started == 20) return (*loop)->Quit();
    EXPECT_TRUE(watch->Watch(*Spawn(RequestFor({"/bin/true"}))).ok());
  });
  watch = *std::move(created);
  ASSERT_TRUE(watch->Watch(*Spawn(RequestFor({"/bin/true"}))).ok());
  (*loop)->Run();
  EXPECT_EQ(started, 20);
}

TEST_F(ChildWatchTest, Traced_ReapedOnceTheTracerDetaches) {
  const pid_t pid = StartReady({TestProgram("ignore_term")});
  Pipe attached, release;
  const pid_t tracer = fork();
  if (tracer == 0) {
    release.write.reset();
    const bool ok = ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) == 0;
    char byte = ok ? 'y' : 'n';
    if (write(attached.write.get(), &byte, 1) != 1) _exit(1);
    // The child's exit is not collected until the parent allows it.
    if (read(release.read.get(), &byte, 1) != 0) _exit(1);
    waitpid(pid, nullptr, 0);
    _exit(0);
  }
  char byte = 'n';
  ASSERT_EQ(read(attached.read.get(), &byte, 1), 1);
  if (byte == 'n') {
    release.write.reset();
    waitpid(tracer, nullptr, 0);
    kill(pid, SIGKILL);
    loop_->Run();
    GTEST_SKIP() << "no permission to trace";
  }
  kill(pid, SIGKILL);
  ASSERT_TRUE(WaitUntilGone(pid));
  // One full iteration of the loop with the dead child in it.
  loop_->Post([this] { loop_->Post([this] { loop_->Post([this] { loop_->Quit(); }); }); });
  loop_->Run();
  EXPECT_EQ(batches_, 0);
  EXPECT_FALSE(watch_->empty());
  release.write.reset();
  loop_->Run();
  EXPECT_EQ(ends_.at(pid).code, SIGKILL);
  waitpid(tracer, nullptr, 0);
}

}  // namespace
}  // namespace ddprun::launcher
