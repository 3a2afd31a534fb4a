#include "rendezvous/state/record_bytes.h"

#include "gtest/gtest.h"
#include "proto/state.pb.h"
#include "tests/rendezvous_state/sample_records.h"

namespace ddprun::rendezvous {
namespace {

TEST(RecordBytesTest, EveryFieldComesBack) {
  for (const JobRecord& record : {LiveRecord("a", 5), EndedRecord("a", 5)}) {
    const absl::StatusOr<JobRecord> back = RecordFromBytes(ToBytes(record));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, record);
  }
}

// Of a server from before what failures have cost was kept.
TEST(RecordBytesTest, OlderRecord_FailuresHaveCostNothing) {
  JobRecord older = LiveRecord("a", 5);
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

// What an operator reads must not keep a server of before from its jobs.
TEST(RecordBytesTest, EventOfANewerServer_IsLeftOut) {
  v1::JobRecord proto;
  ASSERT_TRUE(proto.ParseFromString(ToBytes(LiveRecord("a", 5))));
  proto.mutable_events(1)->set_kind("node.teleported");
  const absl::StatusOr<JobRecord> back = RecordFromBytes(proto.SerializeAsString());
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_EQ(back->events.size(), 2u);
  EXPECT_EQ(back->events[1].kind, Event::Kind::kJobStopped);
}

TEST(JobRecordTest, AddAge_AgesGrowAndWaitsGetShorter) {
  JobRecord record = LiveRecord("a", 5);
  AddAge(absl::Seconds(10), &record);
  EXPECT_EQ(record.age, absl::Seconds(100));
  EXPECT_EQ(record.goodput->ago, absl::Seconds(10));
  EXPECT_EQ(record.restarts.charge_ages[1], absl::Milliseconds(10'500));
  EXPECT_EQ(record.restarts.last_age, absl::Milliseconds(10'500));
  EXPECT_EQ(record.restarts.wait, absl::ZeroDuration());
  EXPECT_EQ(record.cooldowns[0].remaining, absl::Seconds(90));
  EXPECT_EQ(record.cooldowns[1].remaining, std::nullopt);
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
  wrong.earlier_verdict.reset();
  EXPECT_TRUE(absl::IsDataLoss(RecordFromBytes(ToBytes(wrong)).status()));
}

}  // namespace
}  // namespace ddprun::rendezvous
