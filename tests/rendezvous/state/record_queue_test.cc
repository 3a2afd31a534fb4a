#include "rendezvous/state/record_queue.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "rendezvous/core/job_record.h"
#include "tests/rendezvous/state/collected.h"

namespace ddprun::rendezvous {
namespace {

using testing::Test;

class RecordQueueTest : public Test {
 protected:
  // Logs the batch and attempts to write it. Acknowledges its records if that succeeds.
  static bool Write(RecordQueue* queue, Collected<std::string>* diary, const RecordQueue::Batch& batch,
                    absl::FunctionRef<absl::Status()> attempt) {
    diary->Add(absl::StrCat("write ", absl::StrJoin(batch, "+", [](std::string* out, const RecordQueue::Item& item) {
                              absl::StrAppend(out, item.record->job_id());
                            })));
    if (!queue->Try(attempt)) return false;
    for (const RecordQueue::Item& item : batch) item.safe();
    return true;
  }

  void Start(RecordQueue* queue, std::function<absl::Status()> attempt) {
    queue->SetErrorHandler([this](const std::string& trouble) { diary_.Add(absl::StrCat("report '", trouble, "'")); });
    queue->Start([this, queue, attempt = std::move(attempt)](const RecordQueue::Batch& batch, SteadyTime) {
      return Write(queue, &diary_, batch, attempt);
    });
  }

  RecordQueue::Item Item(const std::string& job) {
    auto record = std::make_shared<JobRecord>();
    record->set_job_id(job);
    return {std::move(record), "", [this, job] { diary_.Add("safe " + job); }};
  }

  std::string All() { return absl::StrJoin(diary_.Await(0), "; "); }

  Collected<std::string> diary_;
};

TEST_F(RecordQueueTest, Keep_DuringAWrite_AllGoIntoTheNextBatch) {
  Collected<bool> gate;  // opens with its first
  RecordQueue queue("the store", {.longest = absl::Seconds(1)});
  Start(&queue, [&] {
    gate.Await(1);
    return absl::OkStatus();
  });
  queue.SaveRecord(Item("a"));
  diary_.Await(1);
  queue.SaveRecord(Item("b"));
  queue.SaveRecord(Item("c"));
  gate.Add(true);
  diary_.Await(5);
  EXPECT_EQ(All(), "write a; safe a; write b+c; safe b; safe c");
}

TEST_F(RecordQueueTest, Write_BatchComplete_CallsSafe) {
  RecordQueue queue("the store", {.longest = absl::Seconds(1)});
  std::vector<SteadyTime> taken;
  queue.Start([&](const RecordQueue::Batch& batch, SteadyTime time) {
    taken.push_back(time);
    for (const RecordQueue::Item& item : batch) item.safe();
    return true;
  });
  const SteadyTime before = SteadyNow();
  queue.SaveRecord(Item("a"));
  diary_.Await(1);
  const SteadyTime after = SteadyNow();
  queue.Stop();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_LE(before, taken[0]);
  EXPECT_LE(taken[0], after);
}

TEST_F(RecordQueueTest, Try_FailsForAWhile_ReportsItOnceAndThenItsEnd) {
  int attempts = 0;
  RecordQueue queue("the store", {.first = absl::Milliseconds(1), .longest = absl::Milliseconds(2)});
  Start(&queue, [&] { return ++attempts % 4 == 0 ? absl::OkStatus() : absl::UnavailableError("it is full"); });
  queue.SaveRecord(Item("a"));
  diary_.Await(4);
  queue.SaveRecord(Item("b"));
  diary_.Await(8);
  EXPECT_EQ(All(),
            "write a; report 'can't write to the store: it is full'; report ''; safe a; "
            "write b; report 'can't write to the store: it is full'; report ''; safe b");
  queue.Stop();
  EXPECT_EQ(attempts, 8);
}

// The next attempt would be an hour later.
TEST_F(RecordQueueTest, Stop_BetweenAttempts_GivesUp) {
  RecordQueue queue("the store", {.first = absl::Hours(1), .longest = absl::Hours(1)});
  Start(&queue, [] { return absl::UnavailableError("it is full"); });
  queue.SaveRecord(Item("a"));
  diary_.Await(2);
  queue.SaveRecord(Item("b"));
  queue.Stop();
  EXPECT_EQ(All(), "write a; report 'can't write to the store: it is full'");
}

TEST_F(RecordQueueTest, Stop_WritesWhatWasHandedOver) {
  Collected<bool> gate;  // opens with its first
  RecordQueue queue("the store", {.longest = absl::Seconds(1)});
  Start(&queue, [&] {
    gate.Await(1);
    return absl::OkStatus();
  });
  queue.SaveRecord(Item("a"));
  diary_.Await(1);
  queue.SaveRecord(Item("b"));
  std::thread stopper([&] { queue.Stop(); });
  gate.Add(true);
  stopper.join();
  EXPECT_EQ(All(), "write a; safe a; write b; safe b");
  queue.SaveRecord(Item("c"));
  queue.Stop();
  EXPECT_EQ(All(), "write a; safe a; write b; safe b");
}

TEST_F(RecordQueueTest, Try_Cancelled_EndsTheThreadAndKeepsNothingMore) {
  Collected<bool> gate;  // opens with its first
  RecordQueue queue("the store", {.first = absl::Hours(1), .longest = absl::Hours(1)});
  Start(&queue, [&] {
    gate.Await(1);
    return absl::CancelledError("another server leads");
  });
  queue.SaveRecord(Item("a"));
  diary_.Await(1);
  RecordQueue::Item waiting = Item("b");
  const std::weak_ptr<const JobRecord> waits = waiting.record;
  queue.SaveRecord(std::move(waiting));
  gate.Add(true);
  while (!waits.expired()) std::this_thread::yield();
  RecordQueue::Item later = Item("c");
  const std::weak_ptr<const JobRecord> comes_later = later.record;
  queue.SaveRecord(std::move(later));
  EXPECT_TRUE(comes_later.expired());
  queue.Stop();
  EXPECT_EQ(All(), "write a");
}

TEST_F(RecordQueueTest, Keep_ByManyThreads_EachIsSafeOnceAndInOrder) {
  constexpr int kThreads = 4, kEach = 500;
  std::vector<std::vector<int>> safe(kThreads);
  {
    RecordQueue queue("the store", {.longest = absl::Seconds(1)});
    queue.Start([](const RecordQueue::Batch& batch, SteadyTime) {
      for (const RecordQueue::Item& item : batch) item.safe();
      return true;
    });
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&queue, to = &safe[thread]] {
        const auto record = std::make_shared<const JobRecord>();
        for (int i = 0; i < kEach; ++i) queue.SaveRecord({record, "", [to, i] { to->push_back(i); }});
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (const std::vector<int>& of_thread : safe) {
    ASSERT_EQ(of_thread.size(), size_t{kEach});
    for (int i = 0; i < kEach; ++i) EXPECT_EQ(of_thread[i], i);
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
