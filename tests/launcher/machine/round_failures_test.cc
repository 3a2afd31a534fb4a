#include "launcher/machine/round_failures.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "tests/testing/text_proto.h"

namespace ddprun::launcher {
namespace {

constexpr SteadyTime kNow = SteadyTime::FromStart(absl::Seconds(1000));
constexpr absl::Duration kHold = absl::Milliseconds(250);

FailureEvidence Evidence(absl::string_view text) { return {.failure = TextProto(text, rendezvous::NewFailure())}; }

FailureEvidence BySignal(int rank, int signal) { return Evidence(absl::StrCat("rank: ", rank, " signal: ", signal)); }
FailureEvidence Crash(int rank) { return BySignal(rank, SIGSEGV); }
FailureEvidence LostPeer(int rank) { return BySignal(rank, SIGPIPE); }
FailureEvidence OwnError(int rank) { return Evidence(absl::StrCat("exit_code: 1 message: 'ValueError' rank: ", rank)); }

std::vector<int> Ranks(const std::vector<rendezvous::WorkerFailure>& failures) {
  std::vector<int> ranks;
  for (const auto& failure : failures) ranks.push_back(failure.rank());
  return ranks;
}

TEST(RoundFailuresTest, NoHold_FirstCause_IsReportedAtOnce) {
  RoundFailures failures(absl::ZeroDuration());
  EXPECT_FALSE(failures.Take(kNow));
  failures.Add({LostPeer(0), OwnError(1), LostPeer(2)}, kNow);
  ASSERT_TRUE(failures.Take(kNow));
  EXPECT_EQ(failures.cause().rank(), 1);
  EXPECT_EQ(Ranks(failures.siblings()), std::vector<int>({0, 2}));
  EXPECT_FALSE(failures.Take(kNow)) << "once";
}

TEST(RoundFailuresTest, Hold_Crash_IsReportedAtOnce_ErrorLater) {
  RoundFailures crash(kHold), crash_of_a_peer(kHold), error(kHold);
  crash.Add({Crash(0)}, kNow);
  EXPECT_TRUE(crash.Take(kNow));
  crash_of_a_peer.Add({LostPeer(0)}, kNow);
  crash_of_a_peer.Add({Crash(1)}, kNow);
  ASSERT_TRUE(crash_of_a_peer.Take(kNow));
  EXPECT_EQ(crash_of_a_peer.cause().rank(), 1);
  error.Add({OwnError(0)}, kNow);
  EXPECT_FALSE(error.Take(kNow));
  EXPECT_EQ(error.NextDeadline(), kNow + kHold);
  EXPECT_TRUE(error.Take(kNow + kHold));
}

// The whole node may be killed: the launcher may be next.
TEST(RoundFailuresTest, Hold_Sigkill_IsReportedBriefly) {
  RoundFailures kill(kHold), alone(absl::ZeroDuration());
  kill.Add({BySignal(0, SIGKILL)}, kNow);
  EXPECT_FALSE(kill.Take(kNow));
  EXPECT_EQ(kill.NextDeadline(), kNow + absl::Milliseconds(50));
  kill.Add({BySignal(1, SIGKILL)}, kNow + absl::Milliseconds(20));
  EXPECT_TRUE(kill.Take(kNow + absl::Milliseconds(50))) << "counted from the first";
  alone.Add({BySignal(0, SIGKILL)}, kNow);
  EXPECT_TRUE(alone.Take(kNow)) << "no batch system";
}

TEST(RoundFailuresTest, Hold_SigkillAfterPeerError_ShortensTheHold) {
  RoundFailures failures(kHold);
  failures.Add({LostPeer(0)}, kNow);
  failures.Add({BySignal(1, SIGKILL)}, kNow + absl::Milliseconds(10));
  EXPECT_TRUE(failures.Take(kNow + absl::Milliseconds(60)));
  EXPECT_EQ(failures.cause().rank(), 1);
}

TEST(RoundFailuresTest, Hold_BetterCauseLater_IsReported) {
  RoundFailures failures(kHold);
  failures.Add({LostPeer(0)}, kNow);
  failures.Add({OwnError(1)}, kNow + absl::Milliseconds(100));
  failures.Add({OwnError(2)}, kNow + absl::Milliseconds(200));
  EXPECT_EQ(failures.NextDeadline(), kNow + kHold) << "the wait is counted from the first";
  ASSERT_TRUE(failures.Take(kNow + kHold));
  EXPECT_EQ(failures.cause().rank(), 1) << "of equals the one that was found first";
  EXPECT_EQ(Ranks(failures.siblings()), std::vector<int>({0, 2}));
}

TEST(RoundFailuresTest, PeerErrors_AreHeldBackForExplanations) {
  RoundFailures alone(absl::ZeroDuration()), one_of_three(absl::ZeroDuration()), explained(absl::ZeroDuration());
  alone.Clear(1);
  alone.Add({LostPeer(0)}, kNow);
  EXPECT_TRUE(alone.Take(kNow)) << "nothing can explain it";

  one_of_three.Clear(3);
  one_of_three.Add({LostPeer(0)}, kNow);
  one_of_three.Add({LostPeer(1)}, kNow + absl::Milliseconds(900));
  EXPECT_EQ(one_of_three.NextDeadline(), kNow + RoundFailures::kPeerHold);
  one_of_three.Add({LostPeer(2)}, kNow + absl::Milliseconds(950));
  ASSERT_TRUE(one_of_three.Take(kNow + absl::Milliseconds(950))) << "all have failed";
  EXPECT_EQ(one_of_three.cause().rank(), 0);

  explained.Clear(3);
  explained.Add({LostPeer(0)}, kNow);
  explained.Add({OwnError(1)}, kNow + absl::Milliseconds(500));
  ASSERT_TRUE(explained.Take(kNow + absl::Milliseconds(500)));
  EXPECT_EQ(explained.cause().rank(), 1);
  EXPECT_EQ(Ranks(explained.siblings()), std::vector<int>({0}));
}

TEST(RoundFailuresTest, PeerErrors_RoundEnds_AreSiblings) {
  RoundFailures failures(absl::ZeroDuration());
  failures.Clear(2);
  failures.Add({LostPeer(0)}, kNow);
  failures.Forget();
  failures.Forget();
  EXPECT_FALSE(failures.Take(kNow + absl::Minutes(1)));
  EXPECT_EQ(Ranks(failures.siblings()), std::vector<int>({0}));
  failures.Clear(2);
  failures.Add({OwnError(1)}, kNow);
  ASSERT_TRUE(failures.Take(kNow));
  failures.Forget();
  EXPECT_TRUE(failures.siblings().empty()) << "it was reported";
}

TEST(RoundFailuresTest, ForgetOrClear_NothingIsReported) {
  RoundFailures failures(kHold);
  failures.Add({LostPeer(0)}, kNow);
  failures.Forget();
  EXPECT_FALSE(failures.Take(kNow + kHold));
  EXPECT_EQ(failures.NextDeadline(), SteadyTime::InfiniteFuture());
  failures.Add({Crash(0), Crash(1)}, kNow);
  failures.Clear(1);
  EXPECT_TRUE(failures.siblings().empty());
  EXPECT_FALSE(failures.Take(kNow));
}

}  // namespace
}  // namespace ddprun::launcher
