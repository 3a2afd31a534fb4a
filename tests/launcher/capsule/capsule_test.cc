#include "launcher/capsule/capsule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/text_proto.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Assignment;
using rendezvous::WorkerFailure;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1700000000);

Assignment Round(absl::string_view more = "") {
  return TextProto(more, TextProto<Assignment>("round: 3 group_world_size: 2 base_rank: 4 world_size: 8"
                                               " master_port: 29500 store_secret: 'sixteen bytes...'"));
}

TEST(CapsuleName, SameRound_SameOnAllNodes) {
  const Assignment a = Round("group_rank: 0"), b = Round("group_rank: 1");
  const std::string name = CapsuleName("my job/1", &a, "launcher-a");
  EXPECT_THAT(name, ::testing::StartsWith("my_job_1-round-3-"));
  EXPECT_EQ(name, CapsuleName("my job/1", &b, "launcher-b"));
  EXPECT_THAT(name, Not(HasSubstr("bytes")));
  const Assignment next = Round("round: 4"), other = Round("store_secret: 'another sixteen.'");
  EXPECT_NE(name, CapsuleName("my job/1", &next, "launcher-a"));
  EXPECT_NE(name, CapsuleName("my job/1", &other, "launcher-a"));
  EXPECT_NE(CapsuleName("j", nullptr, "launcher-a"), CapsuleName("j", nullptr, "launcher-b"));
}

TEST(CapsulesToRemove, MoreThanTenOrTooLarge_OldestFirst) {
  std::vector<StoredCapsule> stored;
  for (int i = 0; i < 12; ++i) stored.push_back({absl::StrCat("c", i), kNow + absl::Seconds(i), 1});
  EXPECT_THAT(CapsulesToRemove(stored, "c11"), ElementsAre("c0", "c1"));
  // The current one counts as the newest.
  EXPECT_THAT(CapsulesToRemove(stored, "c0"), ElementsAre("c1", "c2"));
  stored[9].bytes = kMaxCapsuleBytes;
  EXPECT_THAT(CapsulesToRemove(stored, "c11"), ElementsAre("c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9"));
  EXPECT_THAT(CapsulesToRemove({{"c", kNow, kMaxCapsuleBytes + 1}}, "c"), IsEmpty());
}

TEST(LastOutput, LongOutput_WholeLinesWithoutSecrets) {
  const SecretMask mask({"API_KEY=planted-1"});
  EXPECT_EQ(LastOutput("a\nplanted-1\n", 20, mask), "a\n***\n");
  EXPECT_EQ(LastOutput("longer\nb\n", 5, mask), "b\n");
  EXPECT_EQ(LastOutput("longer\nb\n", 2, mask), "b\n");
  EXPECT_EQ(LastOutput("10%\r20%", 5, mask), "20%");
  // There is no other line.
  EXPECT_EQ(LastOutput("one line\n", 5, mask), "line\n");
  // A secret that the limit would cut, and a line that was cut when it was read.
  EXPECT_EQ(LastOutput("x planted-1 y", 6, mask), " *** y");
  const std::string cut = std::string(kMaskedBytes - 5, 'y') + "\nlast";
  EXPECT_EQ(LastOutput(cut, 2 * kMaskedBytes, mask), "last");
  EXPECT_EQ(LastOutput(std::string(kMaskedBytes, 'y'), 2 * kMaskedBytes, mask), "");
}

TEST(Shorten, LongTexts_CutNotDropped) {
  capsule::v1::Node node;
  for (int i = 0; i < 50; ++i) {
    node.add_ranks()->mutable_failure()->set_traceback(std::string(16'000, 'x') + "the error");
    node.add_events()->set_text(std::string(900, 'e'));
  }
  node.mutable_events(49)->set_text("last");
  Shorten(100'000, &node);
  EXPECT_LE(node.ByteSizeLong(), 100'000);
  EXPECT_EQ(node.ranks_size(), 50);
  EXPECT_THAT(node.ranks(7).failure().traceback(), HasSubstr("the error"));
  EXPECT_EQ(node.events(node.events_size() - 1).text(), "last");
}

TEST(RelevantEnvironment, OtherVariables_LeftOut) {
  EXPECT_THAT(RelevantEnvironment({"NCCL_DEBUG=INFO", "HOME=/root", "AWS_SECRET_ACCESS_KEY=x", "MASTER_ADDR=a"}),
              ElementsAre("MASTER_ADDR=a", "NCCL_DEBUG=INFO"));
}

WorkerFailure Failure(absl::string_view more = "") {
  return TextProto(
      more, TextProto<WorkerFailure>("host: 'node-b' rank: 5 local_rank: 1 pid: 77 exit_code: 5 restartable: true"));
}

TEST(RoundRecord, OwnFailureThenServersCause_IsNewsTwice) {
  RoundRecord record(2);
  record.OnEvent("round 3", kNow);
  record.BeginRound(Round(), kNow);
  EXPECT_FALSE(record.has_news());
  record.OnEnded({{1, Failure(), {}}}, /*stopped=*/false, kNow);
  record.OnReported(Failure());
  record.OnEnded({{0, Failure("rank: 4 local_rank: 0 exit_code: 0 signal: 15"), {}}}, /*stopped=*/true, kNow);
  record.OnRoundEnd("", kNow);
  ASSERT_TRUE(record.has_news());
  const capsule::v1::Node own = record.Take();
  EXPECT_FALSE(own.decided());
  EXPECT_EQ(own.failure().verdict().first_cause().rank(), 5);
  ASSERT_EQ(own.ranks_size(), 2);
  EXPECT_TRUE(own.ranks(0).stopped());
  EXPECT_EQ(own.ranks(1).rank(), 5);
  EXPECT_EQ(own.ranks(1).pid(), 77);
  EXPECT_EQ(own.events(0).text(), "round 3");
  EXPECT_FALSE(record.has_news());

  const rendezvous::StopRound stop = rendezvous::NewStopRound(3, "rank 0 failed", Failure("rank: 0"));
  record.OnStopRound(rendezvous::NewStopRound(2, "another round", Failure()));
  EXPECT_FALSE(record.has_news());
  record.OnStopRound(stop);
  ASSERT_TRUE(record.has_news());
  EXPECT_EQ(record.Take().failure().verdict().first_cause().rank(), 0);
  record.OnStopRound(stop);
  EXPECT_FALSE(record.has_news());
}

TEST(RoundRecord, NodeJoins_IsNoFailure) {
  RoundRecord record(1);
  record.BeginRound(Round(), kNow);
  record.OnStopRound(rendezvous::NewStopRound(3, "node c joined", std::nullopt, true, /*at_step_end=*/true));
  record.OnRoundEnd("", kNow);
  EXPECT_FALSE(record.has_news());
  record.OnStopRound(rendezvous::NewStopRound(3, "node b was lost"));
  EXPECT_TRUE(record.has_news());
}

TEST(RoundRecord, HangThatIsNotOver_IsFailure) {
  RoundRecord record(1);
  record.BeginRound(Round(), kNow);
  constexpr char kHang[] = "rank 0 waits\n  line";
  record.OnRoundEnd(kHang, kNow);
  ASSERT_TRUE(record.has_news());
  EXPECT_EQ(record.Take().failure().hang(), "rank 0 waits");
  record.OnRoundEnd(kHang, kNow);
  EXPECT_FALSE(record.has_news());
}

TEST(RoundRecord, JobFailsWhileItWaits_CauseOfTheRoundStays) {
  RoundRecord record(1);
  record.BeginRound(Round(), kNow);
  record.OnStopRound(rendezvous::NewStopRound(3, "rank 5 failed", Failure()));
  hosts::v1::JobFailure failure;
  failure.mutable_verdict()->set_reason("timed out");
  record.OnJobEnd(failure, kNow);
  const capsule::v1::Node node = record.Take();
  EXPECT_TRUE(node.job_ended());
  EXPECT_EQ(node.failure().verdict().reason(), "timed out");
  EXPECT_EQ(node.failure().verdict().first_cause().rank(), 5);
}

TEST(RoundRecord, NextRound_ForgetsFailure) {
  RoundRecord record(1);
  record.BeginRound(Round(), kNow);
  record.OnReported(Failure());
  record.BeginRound(Round("round: 4"), kNow);
  EXPECT_FALSE(record.has_news());
  EXPECT_FALSE(record.Take().has_failure());
}

}  // namespace
}  // namespace ddprun::launcher
