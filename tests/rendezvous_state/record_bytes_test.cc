#include "rendezvous/state/record_bytes.h"

#include "gtest/gtest.h"
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
}

}  // namespace
}  // namespace ddprun::rendezvous
