#include "rendezvous/core/job_record.h"

#include <cstdint>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "proto/time.h"
#include "rendezvous/core/ended_jobs.h"
#include "rendezvous/core/job_history.h"
#include "rendezvous/core/limits.h"
#include "tests/rendezvous/core/sample_records.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

TEST(JobRecordTest, RecordFromBytes_EveryFieldComesBack) {
  JobRecord minimal = NewRecord("a", DefaultSettings());
  minimal.mutable_round();
  for (const JobRecord& record : {LiveRecord("a", 5), EndedRecord("a", 5), minimal}) {
    const absl::StatusOr<JobRecord> back = RecordFromBytes(ToBytes(record));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->ShortDebugString(), record.ShortDebugString());
  }
}

TEST(JobRecordTest, AddAge_AgesGrowAndWaitsGetShorter) {
  JobRecord record = LiveRecord("a", 5);
  AddAge(absl::Seconds(10), &record);
  EXPECT_EQ(record.age().seconds(), 100);
  EXPECT_FALSE(record.has_since_end());
  EXPECT_EQ(record.goodput().ago().seconds(), 10);
  EXPECT_EQ(ToDuration(record.restarts().charge_ages(1)), absl::Milliseconds(10'500));
  EXPECT_EQ(ToDuration(record.restarts().last_age()), absl::Milliseconds(10'500));
  EXPECT_EQ(ToDuration(record.restarts().wait()), absl::ZeroDuration());
  EXPECT_EQ(record.cooldowns(0).remaining().seconds(), 90);
  EXPECT_FALSE(record.cooldowns(1).has_remaining());
  record = EndedRecord("a", 5);
  AddAge(absl::Seconds(10), &record);
  EXPECT_EQ(record.since_end().seconds(), 10);
}

TEST(JobRecordTest, AddAge_WallClockWasWrong_NoTimePasses) {
  const JobRecord record = LiveRecord("a", 5);
  for (const absl::Duration wrong : {-absl::Hours(1), absl::Seconds(1'795'458'271), absl::InfiniteDuration()}) {
    JobRecord aged = record;
    AddAge(wrong, &aged);
    EXPECT_EQ(aged, record) << wrong;
  }
}

// None of these fields determines the members of a round, so extreme values are clamped instead of refused.
TEST(JobRecordTest, RecordFromBytes_ExtremeCountsAgesAndTexts_AreClamped) {
  JobRecord extreme = EndedRecord("a", 5);
  *extreme.mutable_age() = FromDuration(2 * kMaxDuration);
  extreme.set_restarts_charged(INT32_MIN);
  *extreme.mutable_restarts()->mutable_charge_ages(0) = FromDuration(-absl::Seconds(1));
  *extreme.mutable_restarts()->mutable_charge_ages(1) = FromDuration(2 * kMaxDuration);
  extreme.mutable_restarts()->set_series(-1);
  extreme.mutable_restarts()->set_failures_at_step(-1);
  extreme.mutable_restarts()->set_last_rank(-2);
  extreme.mutable_cooldowns(0)->set_times(-1);
  extreme.set_failing_rounds(-1);
  extreme.mutable_goodput()->mutable_times()->mutable_lost()->set_seconds(1'750'284'837);
  extreme.mutable_goodput()->set_highest_step(INT64_MIN);
  extreme.mutable_verdict()->set_exit_code(-1);
  const std::string bad = "\xff\xff";
  for (std::string* text :
       {extreme.mutable_owner(), extreme.mutable_kicked(0)->mutable_actor(), extreme.mutable_round()->mutable_reason(),
        extreme.mutable_round()->mutable_leave_reason(), extreme.mutable_verdict()->mutable_reason(),
        extreme.mutable_earlier_verdict()->mutable_reason(), extreme.mutable_events(2)->mutable_actor()}) {
    *text = bad;
  }
  extreme.clear_settings_host();
  extreme.mutable_round()->set_master_host(std::string(1000, 'x'));
  for (WorkerFailure* failure :
       {extreme.mutable_round()->mutable_leave_cause(), extreme.mutable_verdict()->mutable_first_cause(),
        extreme.mutable_events(1)->mutable_failure()}) {
    *failure = TextProto("rank: -7 local_rank: 1073741824 pid: -1 signal: 99 step: -5", NewFailure());
    failure->set_host(std::string(1000, 'x'));
    failure->set_message(bad);
    *failure->mutable_ran_for() = FromDuration(-absl::InfiniteDuration());
  }
  const absl::StatusOr<JobRecord> back = RecordFromBytes(ToBytes(extreme));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ToDuration(back->restarts().charge_ages(0)), absl::ZeroDuration());
  EXPECT_EQ(ToDuration(back->restarts().charge_ages(1)), kMaxDuration);
  EXPECT_EQ(ToDuration(back->goodput().times().lost()), kMaxDuration);
  EXPECT_EQ(back->goodput().highest_step(), -1);
  EXPECT_EQ(back->restarts_charged(), 0);
  EXPECT_EQ(back->owner(), "??");
  EXPECT_EQ(back->verdict().first_cause().message(), "??");
  EXPECT_EQ(back->round().nodes_size(), 3);
  EXPECT_EQ(ToBytes(*back), ToBytes(*RecordFromBytes(ToBytes(*back))));
}

TEST(JobRecordTest, RecordFromBytes_EarlierRoundWithoutItsVerdict_IsForgotten) {
  JobRecord record = LiveRecord("a", 5);
  record.clear_earlier_verdict();
  EXPECT_EQ(RecordFromBytes(record.SerializeAsString())->earlier_round(), 0);
}

// Damaged bytes are no record, or one that can be written.
TEST(JobRecordTest, RecordFromBytes_AnyDamage_WhatIsReadCanBeWritten) {
  std::mt19937_64 random(1);
  const std::string sound = ToBytes(EndedRecord("a", 5));
  int read = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string bytes = sound;
    for (int k = 0; k < 3; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
    const absl::StatusOr<JobRecord> back = RecordFromBytes(bytes);
    if (!back.ok()) continue;
    ++read;
    EXPECT_TRUE(RecordFromBytes(ToBytes(*back)).ok()) << i;
  }
  EXPECT_GT(read, 10);
}

TEST(JobRecordTest, RecordFromBytes_NoRecord_IsDataLoss) {
  const std::string bytes = ToBytes(LiveRecord("a", 5));
  EXPECT_TRUE(absl::IsDataLoss(RecordFromBytes("not a record").status()));
  EXPECT_TRUE(absl::IsDataLoss(RecordFromBytes("").status()));
  EXPECT_TRUE(absl::IsDataLoss(RecordFromBytes(bytes.substr(0, bytes.size() - 1)).status()));
  JobRecord wrong = LiveRecord("a", 5);
  wrong.set_highest_round(4);
  EXPECT_TRUE(absl::IsDataLoss(RecordFromBytes(ToBytes(wrong)).status()));
  wrong = LiveRecord("a", 5);
  wrong.mutable_round()->mutable_nodes()->RemoveLast();
  EXPECT_TRUE(absl::IsDataLoss(RecordFromBytes(ToBytes(wrong)).status()));
  wrong = LiveRecord("a", 5);
  wrong.mutable_round()->set_master_addr("\xff");
  EXPECT_TRUE(absl::IsDataLoss(RecordFromBytes(ToBytes(wrong)).status()));
}

WorkerFailure LongFailure() {
  WorkerFailure m = TextProto("host: 'node-c' rank: 3 exit_code: 7", NewFailure());
  m.set_message(std::string(4096, 'm'));
  m.set_traceback(std::string(kMaxTracebackBytes, 't'));
  m.set_error_file(std::string(4096, 'f'));
  m.set_progress(std::string(4096, 'p'));
  return m;
}

TEST(JobRecordTest, Shortened_RunningJob_LosesEventsOnly) {
  JobRecord expected = LiveRecord("a", 5);
  expected.clear_events();
  EXPECT_EQ(Shortened(LiveRecord("a", 5)), expected);
}

TEST(JobRecordTest, Shortened_LongTexts_AreCut) {
  JobRecord record = LiveRecord("a", 5);
  *record.mutable_round()->mutable_leave_cause() = LongFailure();
  *record.mutable_earlier_verdict() = NewVerdict(false, std::string(4096, 'r'), LongFailure(), 7);
  record = Shortened(record);
  EXPECT_LE(record.earlier_verdict().reason().size(), JobHistory::kMaxText);
  for (const WorkerFailure& failure : {record.round().leave_cause(), record.earlier_verdict().first_cause()}) {
    EXPECT_EQ(failure.exit_code(), 7);
    for (const std::string* text :
         {&failure.message(), &failure.traceback(), &failure.error_file(), &failure.progress()}) {
      EXPECT_LE(text->size(), JobHistory::kMaxText);
      EXPECT_GT(text->size(), JobHistory::kMaxText / 2);
    }
  }
  EXPECT_EQ(Shortened(record), record);
}

// A job whose round could be persisted can end, however many nodes it has.
TEST(JobRecordTest, Shortened_EndedJob_IsSmallerThanItsRoundWas) {
  JobRecord running = LiveRecord("a", 5);
  running.mutable_round()->clear_leave_reason();
  running.mutable_round()->clear_leave_cause();
  FillRound(1000, &running);
  JobRecord ended = running;
  *ended.mutable_round()->mutable_leave_cause() = LongFailure();
  EndWith(LongFailure(), &ended);
  EXPECT_GT(ToBytes(ended).size(), 2 * ToBytes(running).size());
  const std::string bytes = ToBytes(Shortened(ended));
  EXPECT_LT(bytes.size(), ToBytes(Shortened(running)).size());
  const absl::StatusOr<JobRecord> back = RecordFromBytes(bytes);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->told_size(), 1000);
  EXPECT_EQ(back->verdict().reason(), ended.verdict().reason());
  EXPECT_TRUE(EndedJob::FromRecord(*back, SteadyTime::InfinitePast(), absl::UnixEpoch()).unreported);
}

}  // namespace
}  // namespace ddprun::rendezvous
