#include "rendezvous/state/record_bytes.h"

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/state.pb.h"
#include "tests/rendezvous/state/sample_records.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

TEST(RecordBytesTest, EveryFieldComesBack) {
  for (const JobRecord& record : {LiveRecord("a", 5), EndedRecord("a", 5)}) {
    const absl::StatusOr<JobRecord> back = RecordFromBytes(ToBytes(record));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, record);
  }
}

// Older servers wrote neither owners nor the costs of failures.
TEST(RecordBytesTest, OlderRecord_NoOwnerAndFailuresHaveCostNothing) {
  JobRecord older = LiveRecord("a", 5);
  older.owner.clear();
  older.restarts = RestartRecord();
  older.cooldowns.clear();
  older.failing_node.clear();
  older.failing_rounds = 0;
  older.goodput.reset();
  older.events.clear();
  v1::JobRecord proto;
  ASSERT_TRUE(proto.ParseFromString(ToBytes(older)));
  proto.clear_restarts();
  const absl::StatusOr<JobRecord> back = RecordFromBytes(proto.SerializeAsString());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, older);
}

TEST(JobRecordTest, AddAge_AgesGrowAndWaitsGetShorter) {
  JobRecord record = LiveRecord("a", 5);
  AddAge(absl::Seconds(10), &record);
  EXPECT_EQ(record.age, absl::Seconds(100));
  EXPECT_EQ(ToDuration(record.goodput->ago()), absl::Seconds(10));
  EXPECT_EQ(record.restarts.charge_ages[1], absl::Milliseconds(10'500));
  EXPECT_EQ(record.restarts.last_age, absl::Milliseconds(10'500));
  EXPECT_EQ(record.restarts.wait, absl::ZeroDuration());
  EXPECT_EQ(record.cooldowns[0].remaining, absl::Seconds(90));
  EXPECT_EQ(record.cooldowns[1].remaining, std::nullopt);
}

// None of these fields determines the members of a round, so extreme values are clamped instead of refused.
TEST(RecordBytesTest, WhatPeopleLookAtAndCounts_RefuseNothing) {
  JobRecord extreme = EndedRecord("a", 5);
  extreme.age = 2 * kMaxDuration;
  extreme.restarts_charged = INT32_MIN;
  extreme.restarts.charge_ages = {-absl::Seconds(1), 2 * kMaxDuration};
  extreme.restarts.series = extreme.restarts.failures_at_step = -1;
  extreme.restarts.last_rank = -2;
  extreme.cooldowns[0].times = extreme.failing_rounds = -1;
  extreme.goodput->mutable_times()->mutable_lost()->set_seconds(1'750'284'837);
  extreme.goodput->set_highest_step(INT64_MIN);
  extreme.verdict->set_exit_code(-1);
  extreme.kicked[0].actor = extreme.owner = "\xff";
  extreme.settings_host.clear();
  extreme.round.master_host = std::string(1000, 'x');
  for (WorkerFailure* failure : {&*extreme.round.leave_cause, extreme.events[1].mutable_failure()}) {
    *failure = TextProto("rank: -7 local_rank: 1073741824 pid: -1 signal: 99", NewFailure());
    failure->set_host(std::string(1000, 'x'));
    *failure->mutable_ran_for() = FromDuration(-absl::InfiniteDuration());
    failure->set_step(-5);
  }
  const absl::StatusOr<JobRecord> back = RecordFromBytes(ToBytes(extreme));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->restarts.charge_ages, (std::vector<absl::Duration>{absl::ZeroDuration(), kMaxDuration}));
  EXPECT_EQ(ToDuration(back->goodput->times().lost()), kMaxDuration);
  EXPECT_EQ(back->goodput->highest_step(), -1);
  EXPECT_EQ(back->restarts_charged, 0);
  EXPECT_EQ(back->round.nodes, extreme.round.nodes);
  EXPECT_EQ(ToBytes(*back), ToBytes(*RecordFromBytes(ToBytes(*back))));
}

struct Damage {
  const char* part;
  std::function<void(v1::JobRecord*)> spoil;
  std::function<void(JobRecord*)> expected;  // what is lost
};

// Each part that decides nothing is overwritten in turn: the record loads without it, and everything else is unchanged.
TEST(RecordBytesTest, DamagedPartThatDecidesNothing_IsDroppedAlone) {
  // A text with invalid UTF-8, and no message of any kind.
  const std::string bad = "\xff\xff";
  const std::string shown = "??";
  const auto forget_earlier = [](JobRecord* r) {
    r->earlier_round = 0;
    r->earlier_verdict.reset();
  };
  const std::vector<Damage> damages = {
      {"settings_host", [&](auto* p) { p->set_settings_host(bad); }, [&](auto* r) { r->settings_host = shown; }},
      {"owner", [&](auto* p) { p->set_owner(bad); }, [&](auto* r) { r->owner = shown; }},
      {"kicked.actor", [&](auto* p) { p->mutable_kicked(1)->set_actor(bad); },
       [&](auto* r) { r->kicked[1].actor = shown; }},
      {"round.master_host", [&](auto* p) { p->mutable_round()->set_master_host(bad); },
       [&](auto* r) { r->round.master_host = shown; }},
      {"round.reason", [&](auto* p) { p->mutable_round()->set_reason(bad); },
       [&](auto* r) { r->round.reason = shown; }},
      {"round.leave_reason", [&](auto* p) { p->mutable_round()->set_leave_reason(bad); },
       [&](auto* r) { r->round.leave_reason = shown; }},
      {"round.leave_cause", [&](auto* p) { p->mutable_round()->set_leave_cause(bad); },
       [&](auto* r) { r->round.leave_cause.reset(); }},
      {"verdict.reason", [&](auto* p) { p->mutable_verdict()->set_reason(bad); },
       [&](auto* r) { r->verdict->set_reason(shown); }},
      {"verdict.first_cause", [&](auto* p) { p->mutable_verdict()->set_first_cause(bad); },
       [&](auto* r) { r->verdict->clear_first_cause(); }},
      {"earlier_verdict", [&](auto* p) { p->set_earlier_verdict(bad); }, forget_earlier},
      {"earlier_round without a verdict", [&](auto* p) { p->clear_earlier_verdict(); }, forget_earlier},
      {"goodput", [&](auto* p) { p->set_goodput(bad); }, [&](auto* r) { r->goodput.reset(); }},
      {"events", [&](auto* p) { p->set_events(1, bad); }, [&](auto* r) { r->events.erase(r->events.begin() + 1); }},
  };
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.part);
    JobRecord expected = EndedRecord("a", 5);
    v1::JobRecord proto;
    ASSERT_TRUE(proto.ParseFromString(ToBytes(expected)));
    damage.spoil(&proto);
    damage.expected(&expected);
    const absl::StatusOr<JobRecord> back = RecordFromBytes(proto.SerializeAsString());
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, expected);
  }
}

// A damaged event or goodput may also parse, with values that no server writes.
TEST(RecordBytesTest, AnyBytesInDisplayedMessages_RefuseNothing) {
  std::mt19937_64 random(1);
  v1::JobRecord sound;
  ASSERT_TRUE(sound.ParseFromString(ToBytes(EndedRecord("a", 5))));
  const auto damage = [&random](std::string* bytes) {
    for (int i = 0; i < 3; ++i) (*bytes)[random() % bytes->size()] = static_cast<char>(random());
    if (random() % 4 == 0) bytes->resize(random() % bytes->size());
  };
  for (int i = 0; i < 5000; ++i) {
    v1::JobRecord proto = sound;
    for (std::string* part :
         {proto.mutable_events(0), proto.mutable_events(1), proto.mutable_goodput(), proto.mutable_earlier_verdict(),
          proto.mutable_round()->mutable_leave_cause(), proto.mutable_round()->mutable_reason(),
          proto.mutable_verdict()->mutable_first_cause(), proto.mutable_settings_host()}) {
      damage(part);
    }
    const absl::StatusOr<JobRecord> back = RecordFromBytes(proto.SerializeAsString());
    ASSERT_TRUE(back.ok()) << i << ": " << back.status();
    EXPECT_EQ(back->round.nodes, EndedRecord("a", 5).round.nodes);
    EXPECT_TRUE(RecordFromBytes(ToBytes(*back)).ok()) << i;
  }
}

TEST(JobRecordTest, AddAge_WallClockWasWrong_NoTimePasses) {
  const JobRecord record = LiveRecord("a", 5);
  for (const absl::Duration wrong : {-absl::Hours(1), absl::Seconds(1'795'458'271), absl::InfiniteDuration()}) {
    JobRecord aged = record;
    AddAge(wrong, &aged);
    EXPECT_EQ(aged, record) << wrong;
  }
}

TEST(RecordBytesTest, WhatIsNoRecordIsDataLoss) {
  const std::string bytes = ToBytes(LiveRecord("a", 5));
  EXPECT_TRUE(absl::IsDataLoss(RecordFromBytes("not a record").status()));
  EXPECT_TRUE(absl::IsDataLoss(RecordFromBytes("").status()));
  EXPECT_TRUE(absl::IsDataLoss(RecordFromBytes(bytes.substr(0, bytes.size() / 2)).status()));
  JobRecord wrong = LiveRecord("a", 5);
  wrong.highest_round = 4;
  EXPECT_TRUE(absl::IsDataLoss(RecordFromBytes(ToBytes(wrong)).status()));
  wrong = LiveRecord("a", 5);
  wrong.round.nodes.pop_back();
  EXPECT_TRUE(absl::IsDataLoss(RecordFromBytes(ToBytes(wrong)).status()));
  wrong = LiveRecord("a", 5);
  wrong.round.master_addr = "\xff";
  EXPECT_TRUE(absl::IsDataLoss(RecordFromBytes(ToBytes(wrong)).status()));
}

}  // namespace
}  // namespace ddprun::rendezvous
