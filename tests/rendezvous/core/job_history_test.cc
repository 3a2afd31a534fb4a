#include "rendezvous/core/job_history.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace ddprun::rendezvous {
namespace {

Event At(int seconds, absl::string_view kind, const std::string& detail = "") {
  Event event = NewEvent(kind, detail);
  event.mutable_time()->set_seconds(seconds);
  return event;
}

std::string Times(const std::vector<Event>& events) {
  std::string text;
  for (const Event& event : events) absl::StrAppend(&text, event.time().seconds(), " ");
  return text;
}

TEST(JobHistoryTest, Full_TheFirstAndTheNewestStay) {
  JobHistory history;
  history.Add(At(0, event_kind::kJobCreated));
  const int all = JobHistory::kMaxEvents + 2;
  for (int i = 1; i <= all; ++i) history.Add(At(i, event_kind::kRoundAssigned));
  ASSERT_EQ(history.events().size(), JobHistory::kMaxEvents + 1);
  EXPECT_EQ(history.events()[0].kind(), event_kind::kJobCreated);
  EXPECT_EQ(history.events()[1].time().seconds(), 3);
  EXPECT_EQ(history.events().back().time().seconds(), all);
  EXPECT_EQ(JobHistory(history.events()).events(), history.events());
}

TEST(JobHistoryTest, ManyNodes_LeaveRoomForTheJob) {
  JobHistory history;
  history.Add(At(0, event_kind::kJobCreated));
  history.Add(At(1, event_kind::kWorkerFailed));
  for (int i = 0; i < 1000; ++i) history.Add(At(10 + i, event_kind::kNodeReturned));
  ASSERT_EQ(history.events().size(), 2 + JobHistory::kMaxNodeEvents);
  EXPECT_EQ(history.events()[1].kind(), event_kind::kWorkerFailed);
  EXPECT_EQ(history.events().back().time().seconds(), 1009);
}

TEST(JobHistoryTest, LongTexts_AreCut) {
  JobHistory history;
  Event event = At(1, event_kind::kWorkerFailed, std::string(5000, 'd'));
  *event.mutable_failure() = NewFailure();
  event.mutable_failure()->set_message(std::string(5000, 'm'));
  event.mutable_failure()->set_traceback(std::string(5000, 't'));
  event.mutable_failure()->set_progress(std::string(5000, 'p'));
  history.Add(event);
  const Event& kept = history.events()[0];
  for (const std::string* text :
       {&kept.detail(), &kept.failure().message(), &kept.failure().traceback(), &kept.failure().progress()}) {
    EXPECT_LE(text->size(), JobHistory::kMaxText);
    EXPECT_GT(text->size(), JobHistory::kMaxText / 2);
  }
}

TEST(JobHistoryTest, Timeline_IsByTimeButKeepsEachJobsOrder) {
  const auto with = [](const std::vector<Event>& events) {
    JobRecord record;
    record.mutable_events()->Assign(events.begin(), events.end());
    return record;
  };
  const JobRecord a =
      with({At(1, event_kind::kJobCreated), At(9, event_kind::kRoundAssigned), At(5, event_kind::kRoundStopped)});
  const JobRecord b =
      with({At(2, event_kind::kJobCreated), At(8, event_kind::kRoundAssigned), At(10, event_kind::kJobFinished)});
  EXPECT_EQ(Times(Timeline({a, b})), "1 2 8 9 5 10 ");
}

}  // namespace
}  // namespace ddprun::rendezvous
