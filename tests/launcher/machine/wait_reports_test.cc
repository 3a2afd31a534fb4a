#include "launcher/machine/wait_reports.h"

#include <gmock/gmock.h>

#include "tests/launcher/machine/agent_machine_fixture.h"
#include "tests/testing/text_proto.h"

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr SteadyTime kStart = SteadyTime::FromStart(absl::Seconds(1000));
SteadyTime At(double seconds) { return kStart + absl::Seconds(seconds); }

class WaitReportsTest : public ::testing::Test {
 protected:
  WaitReportsTest()
      : line_({absl::Seconds(12), absl::Minutes(10), absl::Seconds(30)}, kStart),
        reports_({"here (10.0.0.2)", "10.0.0.1:29400", "job", {"a", "b"}}, &line_) {}

  static rendezvous::Assignment Round(int group_rank) {
    return TextProto<rendezvous::Assignment>(
        absl::StrCat("round: 3 world_size: 4 master_addr: '10.0.0.9' master_port: 41000 group_rank: ", group_rank));
  }
  // One line per report that is due at the time.
  std::vector<std::string> Due(SteadyTime now) {
    AgentEffects effects;
    reports_.OnDeadline(now, &effects);
    std::vector<std::string> lines;
    for (const AgentEffect& e : effects) {
      const auto* print = std::get_if<effect::Print>(&e);
      lines.push_back(print != nullptr ? print->text : "missing ranks");
    }
    return lines;
  }

  ServerLine line_;
  WaitReports reports_;
};

TEST_F(WaitReportsTest, LongWait_IsReportedAfterTenSecondsThenEveryMinute) {
  reports_.StartWait(kStart);
  EXPECT_THAT(Due(At(9.9)), IsEmpty());
  EXPECT_THAT(Due(At(10)), ElementsAre("waiting for the rendezvous server at 10.0.0.1:29400"));
  EXPECT_EQ(reports_.NextDeadline(), At(70));
  line_.OnDisconnected("connection refused", std::nullopt, At(11));
  EXPECT_THAT(Due(At(70)), ElementsAre(EndsWith("; here (10.0.0.2): connection refused")));
  line_.OnConnected(At(71));
  line_.OnWelcome(WelcomeEvery(absl::Seconds(1)), At(71));
  EXPECT_THAT(Due(At(130)), ElementsAre("waiting for the other nodes of job job"));
}

TEST_F(WaitReportsTest, Spare_IsNotReported) {
  reports_.StartWait(kStart);
  reports_.OnWaiting(TextProto<rendezvous::Waiting>("spare: true"), kStart);
  EXPECT_THAT(Due(At(10)), IsEmpty());
}

TEST_F(WaitReportsTest, WaitText_RemainingTime_IsCurrent) {
  reports_.OnWaiting(
      TextProto<rendezvous::Waiting>("nodes_joined: 1 min_nodes: 2 max_nodes: 2 hosts: 'a' remaining { seconds: 60 }"),
      kStart);
  EXPECT_THAT(reports_.WaitText(At(20)), HasSubstr("timing out in 40s"));
}

TEST_F(WaitReportsTest, RanksMissing_FirstTenSecondsAfterTheStart_LaterThreeAfterTheFirstCame) {
  reports_.StartRound(Round(0), kStart);
  EXPECT_EQ(reports_.NextDeadline(), SteadyTime::InfiniteFuture()) << "workers need not use the store";
  reports_.OnRanksJoined(1, At(9));
  EXPECT_EQ(reports_.NextDeadline(), At(12));
  reports_.OnRanksJoined(3, At(11));
  EXPECT_THAT(Due(At(12)), ElementsAre("missing ranks"));
  EXPECT_THAT(Due(reports_.NextDeadline()), ElementsAre("missing ranks")) << "again";
  reports_.OnRanksJoined(4, At(13));
  EXPECT_EQ(reports_.NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST_F(WaitReportsTest, StoreOfAnotherNode_NoAnswer_IsReportedOnceARound) {
  reports_.StartRound(TextProto<rendezvous::Assignment>(
                          "round: 1 group_rank: 1 master_addr: 'fd77::1' master_port: 41141 master_host: 'head'"),
                      kStart);
  reports_.OnRegistering(kStart);
  EXPECT_THAT(Due(At(5)), ElementsAre(StartsWith(
                              "here (10.0.0.2) can't reach the store of round 1 at [fd77::1]:41141 on head: no answer "
                              "for 5s; its workers can't either: set --local-addr on head ")));
  reports_.OnStoreReached(absl::UnavailableError("connection timed out"), At(6));
  EXPECT_EQ(reports_.NextDeadline(), SteadyTime::InfiniteFuture()) << "it has been said";
  reports_.StartRound(Round(1), At(7));
  reports_.OnRegistering(At(7));
  EXPECT_EQ(reports_.NextDeadline(), At(12));
}

TEST_F(WaitReportsTest, StoreOfAnotherNode_Refused_IsReportedOnce) {
  reports_.StartRound(Round(1), kStart);
  EXPECT_EQ(reports_.NextDeadline(), SteadyTime::InfiniteFuture()) << "its workers may start slowly";
  reports_.OnRegistering(kStart);
  EXPECT_EQ(reports_.NextDeadline(), At(5));
  reports_.OnStoreReached(absl::UnavailableError("connection refused"), At(1));
  EXPECT_EQ(reports_.NextDeadline(), At(2)) << "the round may be over";
  EXPECT_THAT(Due(At(2)), ElementsAre(StartsWith("here (10.0.0.2) can't reach the store of round 3 at 10.0.0.9:41000 "
                                                 "on node 0: connection refused;")));
  EXPECT_EQ(reports_.NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST_F(WaitReportsTest, StoreOfAnotherNode_ConnectedButNoAnswer_IsReached) {
  reports_.StartRound(Round(1), kStart);
  reports_.OnRegistering(kStart);
  reports_.OnStoreReached(absl::OkStatus(), At(1));
  EXPECT_EQ(reports_.NextDeadline(), SteadyTime::InfiniteFuture());
  reports_.OnStoreReached(absl::UnavailableError("another program answers there"), At(7));
  EXPECT_THAT(Due(At(8)), ElementsAre(HasSubstr("another program answers there")));
}

TEST_F(WaitReportsTest, EndRound_StoreAndRanks_AreNotReported) {
  reports_.StartRound(Round(1), kStart);
  reports_.OnRegistering(kStart);
  reports_.OnRanksJoined(1, kStart);
  reports_.EndRound();
  EXPECT_EQ(reports_.NextDeadline(), SteadyTime::InfiniteFuture());
}

}  // namespace
}  // namespace ddprun::launcher
