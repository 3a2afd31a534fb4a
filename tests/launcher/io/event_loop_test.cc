#include "launcher/io/event_loop.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/launcher/process/process_testing.h"

namespace ddprun::launcher {
namespace {

class EventLoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loop = EventLoop::Create();
    ASSERT_TRUE(loop.ok()) << loop.status();
    loop_ = *std::move(loop);
  }
  static void Fill(const Pipe& pipe) { ASSERT_EQ(write(pipe.write.get(), "x", 1), 1); }
  // Waits for `events` of `fd`, stores those that occur and quits.
  void Await(int fd, uint32_t events, uint32_t* seen) {
    const auto on_events = [this, seen](uint32_t occurred) {
      *seen = occurred;
      loop_->Quit();
    };
    ASSERT_TRUE(loop_->AddFd(fd, events, on_events).ok());
  }
  // Quits at the deadline, and disarms it.
  void QuitAt(SteadyTime* deadline) {
    timer_ = loop_->AddTimer([deadline] { return *deadline; },
                             [this, deadline](SteadyTime) {
                               *deadline = SteadyTime::InfiniteFuture();
                               loop_->Quit();
                             });
  }

  std::unique_ptr<EventLoop> loop_;
  std::shared_ptr<const EventLoop::Timer> timer_;
};

TEST_F(EventLoopTest, AddFd_Readable_CallsBack) {
  const Pipe pipe;
  Fill(pipe);
  uint32_t seen = 0;
  Await(pipe.read.get(), EPOLLIN, &seen);
  EXPECT_TRUE(absl::IsAlreadyExists(loop_->AddFd(pipe.read.get(), EPOLLIN, [](uint32_t) {})));
  EXPECT_FALSE(loop_->AddFd(-1, EPOLLIN, [](uint32_t) {}).ok());
  loop_->Run();
  EXPECT_EQ(seen, EPOLLIN);
}

TEST_F(EventLoopTest, ModifyFd_ChangesTheEvents) {
  const Pipe pipe;
  uint32_t seen = 0;
  Await(pipe.write.get(), 0, &seen);
  loop_->Post([&] { EXPECT_TRUE(loop_->ModifyFd(pipe.write.get(), EPOLLOUT).ok()); });
  loop_->Run();
  EXPECT_EQ(seen, EPOLLOUT);
  EXPECT_TRUE(absl::IsNotFound(loop_->ModifyFd(pipe.read.get(), EPOLLIN)));
}

TEST_F(EventLoopTest, RemoveFd_OfOtherReadyOneInSameTurn_IsNotCalled) {
  const Pipe a, b;
  Fill(a);
  Fill(b);
  int calls = 0;
  const auto remove_both = [&](uint32_t) {
    ++calls;
    loop_->RemoveFd(a.read.get());
    loop_->RemoveFd(b.read.get());
    loop_->Post([&] { loop_->Quit(); });
  };
  ASSERT_TRUE(loop_->AddFd(a.read.get(), EPOLLIN, remove_both).ok());
  ASSERT_TRUE(loop_->AddFd(b.read.get(), EPOLLIN, remove_both).ok());
  loop_->Run();
  EXPECT_EQ(calls, 1);
}

TEST_F(EventLoopTest, RemoveFd_NumberUsedAgainInSameTurn_NewOneIsNotCalledForOldEvent) {
  Pipe a, b;
  const Pipe empty;
  Fill(a);
  Fill(b);
  int calls = 0;
  // The first one called closes the other and replaces it by an empty pipe.
  const auto replace = [&](UniqueFd* own, UniqueFd* other) {
    ++calls;
    loop_->RemoveFd(own->get());
    const int number = other->get();
    loop_->RemoveFd(number);
    ASSERT_EQ(dup2(empty.read.get(), number), number);
    ASSERT_TRUE(loop_->AddFd(number, EPOLLIN, [&](uint32_t) { ADD_FAILURE() << "called for an empty pipe"; }).ok());
    loop_->Post([&] { loop_->Post([&] { loop_->Quit(); }); });
  };
  ASSERT_TRUE(loop_->AddFd(a.read.get(), EPOLLIN, [&](uint32_t) { replace(&a.read, &b.read); }).ok());
  ASSERT_TRUE(loop_->AddFd(b.read.get(), EPOLLIN, [&](uint32_t) { replace(&b.read, &a.read); }).ok());
  loop_->Run();
  EXPECT_EQ(calls, 1);
}

TEST_F(EventLoopTest, Post_FromManyThreads_RunsAllInOrderOfEachThread) {
  constexpr int kThreads = 4;
  constexpr int kPosts = 1000;
  std::vector<int> last(kThreads, -1);
  int done = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kPosts; ++i) {
        loop_->Post([&, t, i] {
          EXPECT_EQ(last[t], i - 1);
          last[t] = i;
          if (++done == kThreads * kPosts) loop_->Quit();
        });
      }
    });
  }
  loop_->Run();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, kThreads * kPosts);
}

TEST_F(EventLoopTest, Quit_FromAnotherThread_EndsRunAndRunCanStartAgain) {
  std::thread([&] { loop_->Quit(); }).join();
  loop_->Run();
  bool ran = false;
  loop_->Post([&] {
    ran = true;
    loop_->Quit();
  });
  loop_->Run();
  EXPECT_TRUE(ran);
}

TEST_F(EventLoopTest, Quit_InPostedTask_KeepsTheRestForTheNextRun) {
  std::string order;
  loop_->Post([&] {
    order += 'a';
    loop_->Post([&] {
      order += 'c';
      loop_->Quit();
    });
    loop_->Quit();
  });
  loop_->Post([&] { order += 'b'; });
  loop_->Run();
  EXPECT_EQ(order, "a");
  loop_->Run();
  EXPECT_EQ(order, "abc");
}

TEST_F(EventLoopTest, Timer_CallsNotBeforeTheDeadlineAndAsksAgain) {
  SteadyTime deadline = SteadyNow() + absl::Milliseconds(20);
  int calls = 0;
  timer_ = loop_->AddTimer([&] { return deadline; },
                           [&](SteadyTime now) {
                             EXPECT_GE(now, deadline);
                             EXPECT_GE(SteadyNow(), deadline);
                             deadline = now + absl::Milliseconds(5);
                             if (++calls == 3) loop_->Quit();
                           });
  loop_->Run();
  EXPECT_EQ(calls, 3);
}

TEST_F(EventLoopTest, Timer_PastDeadline_IsDueAtOnce) {
  SteadyTime deadline = SteadyTime::FromStart(absl::Seconds(-5));
  QuitAt(&deadline);
  loop_->Run();
  EXPECT_EQ(deadline, SteadyTime::InfiniteFuture());
}

TEST_F(EventLoopTest, Timer_DeadlineMovedByPostedTask_IsArmedAnew) {
  SteadyTime deadline = SteadyNow() + absl::Hours(1);
  QuitAt(&deadline);
  std::thread poster([&] { loop_->Post([&] { deadline = SteadyNow() + absl::Milliseconds(1); }); });
  loop_->Run();
  poster.join();
}

TEST_F(EventLoopTest, AddTimer_SeveralTimers_RunUntilTheirHandlesEnd) {
  std::string order;
  SteadyTime first = SteadyNow(), second = first;
  std::shared_ptr<const EventLoop::Timer> ended;
  const auto timer = loop_->AddTimer([&] { return first; },
                                     [&](SteadyTime now) {
                                       order += 'a';
                                       first = now + absl::Hours(1);
                                       ended = nullptr;
                                       second = now + absl::Milliseconds(1);
                                       QuitAt(&second);
                                     });
  ended = loop_->AddTimer([&] { return second; }, [&](SteadyTime) { order += 'b'; });
  loop_->Run();
  EXPECT_EQ(order, "a");
  EXPECT_EQ(second, SteadyTime::InfiniteFuture());
}

TEST_F(EventLoopTest, Idle_NothingDue_DoesNotWakeUp) {
  SteadyTime deadline = SteadyNow() + absl::Milliseconds(50);
  QuitAt(&deadline);
  loop_->Run();
  EXPECT_EQ(loop_->wakeups_for_test(), 1);
}

TEST(BackgroundCallTest, Work_Blocks_LoopContinuesAndReceivesTheResult) {
  auto loop = *EventLoop::Create();
  std::promise<std::string> answer;
  std::string got;
  BackgroundCall<std::string> call(
      loop.get(), [future = answer.get_future().share()] { return future.get(); },
      [&](std::string result) {
        got = std::move(result);
        loop->Quit();
      });
  bool turned = false;
  loop->Post([&] {
    turned = true;
    EXPECT_EQ(got, "");
    answer.set_value("the answer");
  });
  loop->Run();
  EXPECT_TRUE(turned);
  EXPECT_EQ(got, "the answer");
}

TEST(BackgroundCallTest, Destroyed_BeforeTheResult_CallsNothing) {
  auto loop = *EventLoop::Create();
  std::promise<int> answer;
  {
    BackgroundCall<int> call(
        loop.get(), [future = answer.get_future().share()] { return future.get(); },
        [](int) { ADD_FAILURE() << "told"; });
  }
  answer.set_value(1);
  loop->Post([&] { loop->Quit(); });
  loop->Run();
}

}  // namespace

}  // namespace ddprun::launcher
