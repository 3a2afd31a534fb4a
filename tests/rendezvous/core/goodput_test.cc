#include "rendezvous/core/goodput.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/time.h"
#include "rendezvous/core/event.h"

namespace ddprun::rendezvous {
namespace {

SteadyTime At(int seconds) { return SteadyTime::FromStart(absl::Seconds(seconds)); }

std::string Text(const v1::Goodput& times) {
  const auto text = [](const google::protobuf::Duration& time) { return absl::FormatDuration(ToDuration(time)); };
  return absl::StrCat("waiting ", text(times.waiting()), " starting ", text(times.starting()), " training ",
                      text(times.training()), " re-forming ", text(times.re_forming()), " lost ", text(times.lost()));
}

TEST(GoodputTest, OneFailure_TimeIsDivided) {
  Goodput goodput(At(100));
  EXPECT_EQ(Text(goodput.At(At(104))), "waiting 4s starting 0 training 0 re-forming 0 lost 0");
  goodput.OnEvent(event_kind::kRoundAssigned, At(110));
  goodput.OnEvent(event_kind::kNodeJoined, At(111));
  goodput.OnStep(0, At(130));
  for (int i = 1; i <= 10; ++i) goodput.OnStep(i, At(130 + 2 * i));
  goodput.OnEvent(event_kind::kWorkerFailed, At(151));
  goodput.OnEvent(event_kind::kRoundStopped, At(151));
  goodput.OnEvent(event_kind::kRoundAssigned, At(152));
  goodput.OnStep(7, At(155));  // three steps are made again
  goodput.OnStep(6, At(156));  // reported by another rank
  goodput.OnEvent(event_kind::kJobFinished, At(175));
  const std::string end = "waiting 10s starting 20s training 35s re-forming 4s lost 6s";
  EXPECT_EQ(Text(goodput.At(At(175))), end);
  EXPECT_EQ(Text(goodput.At(At(900))), end) << "an ended job takes no time";
}

TEST(GoodputTest, JobWaitsAgain_ThenReForms) {
  Goodput goodput(At(0));
  goodput.OnEvent(event_kind::kRoundAssigned, At(1));
  goodput.OnEvent(event_kind::kRoundStopped, At(2));  // before anything was trained
  goodput.OnEvent(event_kind::kRoundAssigned, At(3));
  goodput.OnStep(0, At(4));
  goodput.OnEvent(event_kind::kRoundStopped, At(5));
  goodput.OnStep(1, At(6));  // late, of the round that was stopped: counts as the next one's, by a second
  goodput.OnEvent(event_kind::kRoundStopped, At(6));
  goodput.OnEvent(event_kind::kJobWaiting, At(6));
  goodput.OnStep(2, At(8));
  goodput.OnEvent(event_kind::kRoundAssigned, At(16));
  EXPECT_EQ(Text(goodput.At(At(20))), "waiting 11s starting 3s training 1s re-forming 5s lost 0");
}

TEST(GoodputTest, OnRecord_ServerReplaced_TimeContinues) {
  Goodput before(At(0));
  before.OnEvent(event_kind::kRoundAssigned, At(10));
  before.OnStep(0, At(20));
  before.OnEvent(event_kind::kRoundStopped, At(30));
  v1::GoodputRecord record = before.Record(At(32));
  EXPECT_FALSE(record.has_ago());
  *record.mutable_ago() = FromDuration(absl::Seconds(8));
  Goodput after(record, At(1000));  // on another clock
  EXPECT_EQ(Text(after.At(At(1005))), "waiting 10s starting 10s training 10s re-forming 15s lost 0");
  after.OnStep(0, At(1006));
  EXPECT_EQ(Text(after.At(At(1010))), "waiting 10s starting 10s training 14s re-forming 16s lost 0");
  after.OnEvent(event_kind::kJobFailed, At(1010));
  record = after.Record(At(1010));
  *record.mutable_ago() = FromDuration(absl::Hours(1));
  EXPECT_EQ(Text(Goodput(record, At(0)).At(At(50))), Text(after.At(At(1010)))) << "an ended job takes no time";
}

// A record is made when a round begins, not when its first step is reported.
TEST(GoodputTest, WorkersTrainedOnWithoutServer_ThatTimeIsTraining) {
  Goodput before(At(0));
  before.OnEvent(event_kind::kRoundAssigned, At(10));
  v1::GoodputRecord record = before.Record(At(10));
  before.OnStep(0, At(20));
  *record.mutable_ago() = FromDuration(absl::Seconds(100));
  Goodput after(record, At(1000));
  after.OnEvent(event_kind::kRoundAssigned, At(1001));  // the restored job's next round
  EXPECT_EQ(Text(after.At(At(1002))), "waiting 10s starting 1m42s training 0 re-forming 0 lost 0");
  after.OnStep(50, At(1003));
  EXPECT_EQ(Text(after.At(At(1004))), "waiting 10s starting 0 training 1m44s re-forming 0 lost 0");

  Goodput failed(record, At(1000));  // before a step was reported
  failed.OnEvent(event_kind::kRoundStopped, At(1002));
  failed.OnStep(40, At(1007));
  EXPECT_EQ(Text(failed.At(At(1007))), "waiting 10s starting 5s training 1m42s re-forming 0 lost 0");

  Goodput begins(record, At(1000));
  begins.OnStep(0, At(1003));
  EXPECT_EQ(Text(begins.At(At(1003))), "waiting 10s starting 1m43s training 0 re-forming 0 lost 0");
}

// A worker may report any step, and a record has to hold what follows.
TEST(GoodputTest, OnStep_ImpossibleSteps_LoseAtMostTrainedTime) {
  Goodput goodput(At(0));
  goodput.OnEvent(event_kind::kRoundAssigned, At(1));
  goodput.OnStep(1, At(2));
  goodput.OnStep(2, At(3));
  goodput.OnStep(INT64_MAX, At(4));
  goodput.OnEvent(event_kind::kRoundStopped, At(5));
  goodput.OnStep(0, At(6));
  EXPECT_EQ(goodput.Record(At(7)).times().lost().seconds(), 3);
}

}  // namespace
}  // namespace ddprun::rendezvous
