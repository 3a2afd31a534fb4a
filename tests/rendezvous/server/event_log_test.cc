#include "rendezvous/server/event_log.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace ddprun::rendezvous {
namespace {

Event Of(const std::string& job_id) {
  Event event;
  event.set_job_id(job_id);
  return event;
}

std::string Numbers(const EventLog::Events& events) {
  std::string text;
  for (const auto& event : events) absl::StrAppend(&text, event->job_id(), event->number(), " ");
  return text;
}

TEST(EventLog, Read_AfterNumber_ReturnsLaterEvents) {
  EventLog log(3);
  EXPECT_EQ(log.newest(), 0u);
  EXPECT_EQ(Numbers(log.Read(0, 10)), "");
  EXPECT_EQ(Numbers(log.Read(7, 10)), "");
  for (const char* job : {"a", "b", "c", "d", "e"}) log.Append(Of(job));
  EXPECT_EQ(log.newest(), 5u);
  struct Case {
    uint64_t after;
    size_t limit;
    const char* numbers;
  };
  for (const Case& c : std::vector<Case>{{0, 10, "c3 d4 e5 "},  // the oldest two are gone
                                         {1, 10, "c3 d4 e5 "},
                                         {2, 10, "c3 d4 e5 "},
                                         {3, 10, "d4 e5 "},
                                         {4, 10, "e5 "},
                                         {5, 10, ""},
                                         {6, 10, "c3 d4 e5 "},  // a number of an earlier server
                                         {0, 2, "c3 d4 "},
                                         {3, 1, "d4 "},
                                         {3, 0, ""}}) {
    EXPECT_EQ(Numbers(log.Read(c.after, c.limit)), c.numbers) << "after " << c.after << ", at most " << c.limit;
  }
}

TEST(EventLog, Restore_BeginsWithTheNewestOfBefore) {
  EventLog log(3);
  std::vector<Event> before;
  for (const char* job : {"a", "b", "c", "d"}) {
    before.push_back(Of(job));
    before.back().set_round(7);
  }
  log.Restore(std::move(before));
  EXPECT_EQ(Numbers(log.Read(0, 10)), "b1 c2 d3 ");
  EXPECT_EQ(log.Read(0, 1)[0]->round(), 7u);
  log.Append(Of("e"));
  EXPECT_EQ(log.restored(), 3u);
  EXPECT_EQ(Numbers(log.Read(log.restored(), 10)), "e4 ");
}

TEST(EventLog, Restore_NumbersOfEarlierServersAreNotGivenAgain) {
  EventLog log;
  log.Restore({Of("a")}, 2);
  log.Append(Of("b"));
  EXPECT_EQ(Numbers(log.Read(0, 10)), "a2000000001 b2000000002 ");
  EXPECT_EQ(Numbers(log.Read(7, 10)), "a2000000001 b2000000002 ") << "of a server before this one";
  EXPECT_EQ(Numbers(log.Read(2'000'000'001, 10)), "b2000000002 ");
}

TEST(EventLog, Watch_NewEvents_IsNotifiedUntilDestroyed) {
  EventLog log;
  uint64_t seen = 0;
  int calls = 0;
  {
    EventLog::Watch watch = log.AddWatch([&] {
      ++calls;
      for (const auto& event : log.Read(seen, 100)) seen = event->number();  // no lock is held
    });
    log.Append(Of("a"));
    EXPECT_EQ(seen, 1u);
    EventLog::Watch moved = std::move(watch);
    log.Append(Of("b"));
    EXPECT_EQ(seen, 2u);
  }
  log.Append(Of("c"));
  EXPECT_EQ(calls, 2);
}

// For the thread sanitizer as well.
TEST(EventLog, ManyThreads_AppendWatchAndRead_NumbersHaveNoGaps) {
  EventLog log;
  constexpr int kThreads = 4, kEach = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&log] {
      for (int i = 0; i < kEach; ++i) {
        std::atomic<int> calls = 0;  // any appending thread may call
        {
          EventLog::Watch watch = log.AddWatch([&calls, &log] { calls += log.newest() > 0 ? 1 : 2; });
          log.Append(Of("x"));
        }
        EXPECT_GT(calls, 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const EventLog::Events events = log.Read(0, kThreads * kEach + 1);
  ASSERT_EQ(events.size(), static_cast<size_t>(kThreads * kEach));
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]->number(), i + 1);
}

}  // namespace
}  // namespace ddprun::rendezvous
