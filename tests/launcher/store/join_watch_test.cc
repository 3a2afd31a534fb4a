#include "launcher/store/join_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<int> RanksOf(const std::vector<MissingRank>& missing) {
  std::vector<int> ranks;
  for (const MissingRank& one : missing) ranks.push_back(one.rank);
  return ranks;
}

std::string GlooKey(int rank) { return absl::StrCat("/default_pg/0//cpu//0/", rank); }

// Two nodes: a (10.0.0.1) has ranks 0 and 1, b (10.0.0.2) ranks 2 and 3.
class JoinWatchTest : public testing::Test {
 protected:
  JoinWatchTest() {
    watch_.BeginRound(5, 4);
    EXPECT_TRUE(watch_.Register({5, 0, "a", {100, 101}}, "10.0.0.1").ok());
    EXPECT_TRUE(watch_.Register({5, 2, "b", {100, 201}}, "10.0.0.2").ok());
  }
  std::vector<int> Missing() const { return RanksOf(watch_.Missing()); }

  JoinWatch watch_;
};

TEST_F(JoinWatchTest, Missing_NoClient_NamesAllRanks) {
  EXPECT_EQ(watch_.Joined(), 0);
  EXPECT_THAT(watch_.Missing(), ElementsAre(MissingRank{0, 0, "a", 100}, MissingRank{1, 1, "a", 101},
                                            MissingRank{2, 0, "b", 100}, MissingRank{3, 1, "b", 201}));
}

TEST_F(JoinWatchTest, OnClient_SamePidOnTwoNodes_KeptApart) {
  // Several connections of one worker count once.
  for (int i = 0; i < 2; ++i) watch_.OnClient({"10.0.0.2", {100}});
  EXPECT_EQ(watch_.Joined(), 1);
  EXPECT_THAT(Missing(), ElementsAre(0, 1, 3));
}

TEST_F(JoinWatchTest, OnClient_ChildOfAWorker_IsThatRank) {
  watch_.OnClient({"10.0.0.1", {555, 444, 101, 1000}});
  EXPECT_THAT(Missing(), ElementsAre(0, 2, 3));
  EXPECT_EQ(watch_.RankOf({"10.0.0.1", {555, 444, 101, 1000}}), 1);
}

TEST_F(JoinWatchTest, OnClient_BeforeItsNodeRegistersOrTheRound_CountsAfterwards) {
  JoinWatch watch;
  watch.OnClient({"10.0.0.1", {555, 101}});
  EXPECT_THAT(watch.Missing(), IsEmpty());
  watch.BeginRound(5, 3);
  EXPECT_EQ(watch.Joined(), 0);
  ASSERT_TRUE(watch.Register({5, 0, "a", {100, 101}}, "10.0.0.1").ok());
  EXPECT_EQ(watch.Joined(), 1);
  EXPECT_THAT(watch.Missing(), ElementsAre(MissingRank{0, 0, "a", 100}, MissingRank{2, std::nullopt, "", 0}));
}

TEST(JoinWatch, OnSet_GlooKeyBeforeTheRound_CountsAfterwards) {
  JoinWatch watch;
  watch.OnClient({"10.0.0.1", {7}});
  watch.OnSet({"10.0.0.1", {7}}, GlooKey(2));
  EXPECT_EQ(watch.Joined(), 0);
  watch.BeginRound(5, 3);
  EXPECT_EQ(watch.Joined(), 1);
  EXPECT_THAT(RanksOf(watch.Missing()), ElementsAre(0, 1));
}

TEST_F(JoinWatchTest, OnSet_GlooKey_IdentifiesTheRank) {
  const JoinWatch::Client wrapped = {"10.0.0.2", {777}};
  watch_.OnSet(wrapped, GlooKey(3));  // not known yet
  watch_.OnClient(wrapped);
  for (const std::string key : {"/default_pg/0//1//cpu//0/3", "/mine/default_pg/0//cpu//0/3", "/a", ""}) {
    watch_.OnSet(wrapped, key);
  }
  watch_.OnSet(wrapped, GlooKey(4));  // outside of the world
  EXPECT_EQ(watch_.Joined(), 0);
  EXPECT_THAT(Missing(), ElementsAre(0, 1, 2, 3));
  watch_.OnSet(wrapped, GlooKey(3));
  EXPECT_THAT(Missing(), ElementsAre(0, 1, 2)) << "and it is not taken for another one";
  EXPECT_EQ(watch_.RankOf(wrapped), 3);
}

TEST_F(JoinWatchTest, Missing_AsManyUnknownClientsAsRanks_TakenForThem) {
  watch_.OnClient({"10.0.0.2", {777}});
  EXPECT_THAT(Missing(), ElementsAre(0, 1, 2, 3));
  watch_.OnClient({"10.0.0.2", {778}});
  EXPECT_THAT(Missing(), ElementsAre(0, 1));
  for (const uint32_t pid : {100, 101}) watch_.OnClient({"10.0.0.1", {pid}});
  EXPECT_THAT(watch_.Missing(), IsEmpty());
}

TEST_F(JoinWatchTest, Missing_UnknownClientBesideAKnownOne_TakenForTheOther) {
  for (const uint32_t pid : {201, 777}) watch_.OnClient({"10.0.0.2", {pid}});
  EXPECT_THAT(Missing(), ElementsAre(0, 1));
}

TEST_F(JoinWatchTest, Missing_UnknownClientsFromElsewhere_DoNotCount) {
  for (uint32_t pid = 1; pid < 100; ++pid) watch_.OnClient({"10.0.0.9", {pid}});
  EXPECT_EQ(watch_.Joined(), 0);
}

TEST_F(JoinWatchTest, Missing_TwoLaunchersOnOneHost_DistinguishedByPid) {
  JoinWatch watch;
  watch.BeginRound(5, 2);
  ASSERT_TRUE(watch.Register({5, 0, "a", {100}}, "this host").ok());
  ASSERT_TRUE(watch.Register({5, 1, "a", {200}}, "this host").ok());
  watch.OnClient({"this host", {200}});
  EXPECT_THAT(watch.Missing(), ElementsAre(MissingRank{0, 0, "a", 100}));
}

TEST_F(JoinWatchTest, Register_TheSameAgain_ChangesNothing) {
  watch_.OnClient({"10.0.0.2", {201}});
  EXPECT_TRUE(watch_.Register({5, 2, "b", {100, 201}}, "10.0.0.2").ok());
  EXPECT_THAT(Missing(), ElementsAre(0, 1, 2));
  EXPECT_EQ(watch_.Joined(), 1);
}

TEST_F(JoinWatchTest, Register_RanksOfAnotherNode_Refused) {
  JoinWatch watch;
  watch.BeginRound(5, 9);
  ASSERT_TRUE(watch.Register({5, 3, "b", {1, 2, 3}}, "10.0.0.2").ok());
  const auto code = [&](int base, std::vector<uint32_t> pids) {
    return watch.Register({5, base, "c", pids}, "10.0.0.3").code();
  };
  EXPECT_EQ(code(3, {1, 2, 3}), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(code(5, {9}), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(code(2, {9, 9}), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(code(0, {1, 2, 3, 4, 5, 6, 7}), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(code(2, {9}), absl::StatusCode::kOk);
  EXPECT_EQ(code(6, {7, 8, 9}), absl::StatusCode::kOk);
}

TEST_F(JoinWatchTest, Register_PidNotKnown_ThatRankStaysMissing) {
  JoinWatch watch;
  watch.BeginRound(5, 2);
  ASSERT_TRUE(watch.Register({5, 0, "b", {0, 301}}, "10.0.0.2").ok());
  watch.OnClient({"10.0.0.2", {301}});
  EXPECT_THAT(RanksOf(watch.Missing()), ElementsAre(0));
}

TEST_F(JoinWatchTest, Register_NoOrOtherRoundOrOutsideOfTheWorld_Refused) {
  EXPECT_EQ(JoinWatch().Register({5, 0, "b", {1}}, "x").code(), absl::StatusCode::kFailedPrecondition);
  for (const uint64_t round : {4, 6}) {
    EXPECT_EQ(watch_.Register({round, 2, "b", {1}}, "x").code(), absl::StatusCode::kFailedPrecondition);
  }
  const std::pair<int, std::vector<uint32_t>> kOutside[] = {{3, {1, 2}}, {-1, {1}}, {1048575, {1}}, {4, {}}};
  for (const auto& [base, pids] : kOutside) {
    EXPECT_EQ(watch_.Register({5, base, "c", pids}, "x").code(), absl::StatusCode::kInvalidArgument) << base;
  }
  EXPECT_EQ(watch_.Missing().size(), 4u);
}

// Regression test: an event must not cost more in a larger world, for example by iterating over all ranks.
TEST(JoinWatch, Events_LargeWorld_VisitOwnClientsOnly) {
  constexpr int kNodes = 2000;
  constexpr int kSlots = 8;
  JoinWatch watch;
  watch.BeginRound(5, kNodes * kSlots);
  for (int node = 0; node < kNodes; ++node) {
    const std::string address = absl::StrCat("10.0.", node / 256, ".", node % 256);
    NodeRegistration registration = {5, node * kSlots, "host", {}};
    for (int i = 0; i < kSlots; ++i) registration.pids.push_back(100 + i);
    // Half of the workers connect before their launcher registers.
    for (uint32_t i = 0; i < kSlots / 2; ++i) watch.OnClient({address, {100 + i}});
    ASSERT_TRUE(watch.Register(registration, address).ok());
    for (uint32_t i = kSlots / 2; i < kSlots; ++i) {
      watch.OnClient({address, {100 + i}});
      watch.OnSet({address, {100 + i}}, GlooKey(node * kSlots + static_cast<int>(i)));
    }
    ASSERT_EQ(watch.Joined(), (node + 1) * kSlots);
  }
  EXPECT_LE(watch.visits_for_test(), 4 * kNodes * kSlots);
}

TEST_F(JoinWatchTest, OnClient_EndlesslyManyPids_NotAllKept) {
  for (uint32_t pid = 1000; pid < 201000; ++pid) watch_.OnClient({"10.0.0.9", {pid}});
  watch_.OnClient({"10.0.0.9", {999}});
  watch_.OnSet({"10.0.0.9", {999}}, GlooKey(0));
  EXPECT_EQ(watch_.Joined(), 0);
}

TEST(JoinWatchKeys, RankThatSets_TorchsNames) {
  EXPECT_EQ(JoinWatch::RankThatSets("/default_pg/0//cpu//0/12"), 12);
  EXPECT_EQ(JoinWatch::RankThatSets("/default_pg/0//cuda//0"), 0);
  EXPECT_EQ(JoinWatch::RankThatSets("/default_pg/0//cuda//3"), 0);
  for (const std::string key : {"/default_pg/0//cpu//0/", "/default_pg/0//cpu//0/x", "/default_pg/0//cpu//0/-1",
                                "/default_pg/0//cpu//0/01", "/default_pg/0//cpu//0/99999999999", "/a", ""}) {
    EXPECT_EQ(JoinWatch::RankThatSets(key), std::nullopt) << key;
  }
}

}  // namespace
}  // namespace ddprun::launcher
