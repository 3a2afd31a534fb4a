#include "rendezvous/core/job_history.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace ddprun::rendezvous {
namespace {

using Kind = Event::Kind;

Event At(int seconds, Kind kind, const std::string& detail = "") {
  return {.kind = kind, .detail = detail, .time = absl::FromUnixSeconds(seconds)};
}

std::string Times(const std::vector<Event>& events) {
  std::string text;
  for (const Event& event : events) absl::StrAppend(&text, absl::ToUnixSeconds(event.time), " ");
  return text;
}

TEST(JobHistoryTest, Full_TheFirstAndTheNewestStay) {
  JobHistory history;
  history.Add(At(0, Kind::kJobCreated));
  const int all = JobHistory::kMaxEvents + 2;
  for (int i = 1; i <= all; ++i) history.Add(At(i, Kind::kRoundAssigned));
  ASSERT_EQ(history.events().size(), JobHistory::kMaxEvents + 1);
  EXPECT_EQ(history.events()[0].kind, Kind::kJobCreated);
  EXPECT_EQ(history.events()[1].time, absl::FromUnixSeconds(3));
  EXPECT_EQ(history.events().back().time, absl::FromUnixSeconds(all));
  EXPECT_EQ(JobHistory(history.events()).events(), history.events());
}

TEST(JobHistoryTest, ManyNodes_LeaveRoomForTheJob) {
  JobHistory history;
  history.Add(At(0, Kind::kJobCreated));
  history.Add(At(1, Kind::kWorkerFailed));
  for (int i = 0; i < 1000; ++i) history.Add(At(10 + i, Kind::kNodeReturned));
  ASSERT_EQ(history.events().size(), 2 + JobHistory::kMaxNodeEvents);
  EXPECT_EQ(history.events()[1].kind, Kind::kWorkerFailed);
  EXPECT_EQ(history.events().back().time, absl::FromUnixSeconds(1009));
}

TEST(JobHistoryTest, LongTexts_AreCut) {
  JobHistory history;
  Event event = At(1, Kind::kWorkerFailed, std::string(5000, 'd'));
  event.failure = NewFailure();
  event.failure->set_message(std::string(5000, 'm'));
  event.failure->set_traceback(std::string(5000, 't'));
  event.failure->set_progress(std::string(5000, 'p'));
  history.Add(event);
  const Event& kept = history.events()[0];
  for (const std::string* text :
       {&kept.detail, &kept.failure->message(), &kept.failure->traceback(), &kept.failure->progress()}) {
    EXPECT_LE(text->size(), JobHistory::kMaxText);
    EXPECT_GT(text->size(), JobHistory::kMaxText / 2);
  }
}

TEST(JobHistoryTest, Timeline_IsByTimeButKeepsEachJobsOrder) {
  JobRecord a, b;
  a.events = {At(1, Kind::kJobCreated), At(9, Kind::kRoundAssigned), At(5, Kind::kRoundStopped)};
  b.events = {At(2, Kind::kJobCreated), At(8, Kind::kRoundAssigned), At(10, Kind::kJobFinished)};
  EXPECT_EQ(Times(Timeline({a, b})), "1 2 8 9 5 10 ");
}

}  // namespace
}  // namespace ddprun::rendezvous
