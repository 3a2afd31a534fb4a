// The session with the rendezvous server alone; agent_machine_test and cut_off_test test the launcher's reactions.
#include "launcher/machine/server_line.h"

#include <gtest/gtest.h>

#include "tests/launcher/machine/agent_machine_fixture.h"

namespace ddprun::launcher {
namespace {

using Reading = ServerLine::Reading;
using State = ServerLine::State;

constexpr absl::Duration kTimeout = absl::Seconds(12);  // heartbeat timeout
constexpr SteadyTime kStart = SteadyTime::FromStart(absl::Seconds(1000));

SteadyTime At(double seconds) { return kStart + absl::Seconds(seconds); }

class ServerLineTest : public ::testing::Test {
 protected:
  ServerLineTest() : line_({kTimeout, absl::Minutes(10), absl::Seconds(30)}, kStart) {}
  void Up(absl::Duration interval = kTimeout / 6) {
    line_.OnConnected(kStart);
    line_.OnMessage(false, kStart);
    line_.OnWelcome(WelcomeEvery(interval), kStart);
  }
  ServerLine line_;
};

TEST_F(ServerLineTest, NeverReached_IsGivenUpAfterTheJoinTimeout) {
  EXPECT_EQ(line_.OnDisconnected("refused", std::nullopt, At(1)), false);
  EXPECT_EQ(line_.NextDeadline(), kStart + absl::Minutes(10));
  EXPECT_EQ(line_.patience(), absl::Minutes(10));
  EXPECT_FALSE(line_.TakeGivingUp(At(599)));
  EXPECT_TRUE(line_.TakeGivingUp(At(600)));
  EXPECT_FALSE(line_.TakeGivingUp(At(601))) << "once";
}

TEST_F(ServerLineTest, Lost_IsGivenUpAfterTheReconnectTimeout) {
  Up();
  EXPECT_TRUE(line_.OnDisconnected("closed", std::nullopt, At(5)));
  EXPECT_FALSE(line_.OnDisconnected("refused", At(6), At(6))) << "it was not up";
  line_.OnConnected(At(7));
  EXPECT_FALSE(line_.OnDisconnected("closed", std::nullopt, At(8)));
  EXPECT_EQ(line_.NextDeadline(), At(35));
  EXPECT_TRUE(line_.TakeGivingUp(At(35)));
  EXPECT_EQ(line_.patience(), absl::Seconds(30));
}

// A server hosted by a launcher ends with its node; an external one is restarted.
TEST_F(ServerLineTest, Lost_WithoutASetting_TimeoutDependsOnTheServer) {
  ServerLine line({kTimeout, absl::Minutes(10)}, kStart);
  line.OnConnected(kStart);
  for (const bool by_launcher : {false, true, false}) {
    rendezvous::Welcome welcome = WelcomeEvery(absl::Seconds(2));
    welcome.set_by_launcher(by_launcher);
    line.OnWelcome(welcome, kStart);
    EXPECT_EQ(line.patience(), by_launcher ? absl::Seconds(30) : absl::Minutes(30));
  }
  line.OnDisconnected("closed", std::nullopt, At(1));
  EXPECT_FALSE(line.TakeGivingUp(At(1800)));
  EXPECT_TRUE(line.TakeGivingUp(At(1801)));
}

TEST_F(ServerLineTest, OnConnected_IncarnationsGrow) {
  EXPECT_EQ(line_.OnConnected(kStart), 1u);
  line_.OnDisconnected("closed", std::nullopt, At(1));
  EXPECT_EQ(line_.OnConnected(At(2)), 2u);
  EXPECT_EQ(line_.state(), State::kJoining);
}

TEST_F(ServerLineTest, Up_SendsHeartbeatsAtTheServersInterval) {
  Up(absl::Seconds(2));
  for (const auto& [seconds, due] :
       {std::pair(1.9, false), std::pair(2., true), std::pair(2., false), std::pair(4., true)})
    EXPECT_EQ(line_.TakeHeartbeat(At(seconds)), due) << seconds;
}

TEST_F(ServerLineTest, Silence_IsHalfTheTimeoutWithoutAMessage_LongerWithoutWorkers) {
  Up();
  line_.OnMessage(true, At(3));
  EXPECT_FALSE(line_.TakeSilence(At(17.9)));
  line_.SetHasWorkers(true);
  EXPECT_FALSE(line_.TakeSilence(At(8.9)));
  EXPECT_TRUE(line_.TakeSilence(At(9))) << "counted from when it was last heard";
}

TEST_F(ServerLineTest, OnWelcome_Timeout_ExtendsTheLease) {
  line_.OnConnected(kStart);
  line_.SetHasWorkers(true);
  line_.OnMessage(false, At(1));
  line_.OnWelcome(WelcomeEvery(absl::Seconds(4)), At(1));
  EXPECT_EQ(line_.lease().StopAt(), At(20));
  EXPECT_EQ(line_.lease().KillAt(), At(22));
  EXPECT_TRUE(line_.TakeHeartbeat(At(5)));
  // An older server fences by the job's timeout.
  line_.OnDisconnected("closed", std::nullopt, At(6));
  line_.OnConnected(At(6));
  line_.OnMessage(false, At(6));
  line_.OnWelcome(WelcomeEvery(absl::Seconds(2)), At(6));
  EXPECT_EQ(line_.lease().StopAt(), At(16));
}

TEST_F(ServerLineTest, OnMessage_AfterTheLeaseOrOnAnAbandonedStream_DoesNotCount) {
  Up(absl::Seconds(2));
  for (const int seconds : {2, 4}) line_.TakeHeartbeat(At(seconds));
  EXPECT_EQ(line_.OnMessage(false, At(4)), Reading::kCounts);
  EXPECT_EQ(line_.lease().since(), kStart) << "other messages are no evidence";
  for (const int since : {2, 4, 4}) {  // the last one acknowledges nothing
    EXPECT_EQ(line_.OnMessage(true, At(5)), Reading::kCounts);
    EXPECT_EQ(line_.lease().since(), At(since)) << "when the heartbeat was sent";
  }
  EXPECT_EQ(line_.OnMessage(false, At(13.9)), Reading::kCounts);
  EXPECT_EQ(line_.OnMessage(false, At(14)), Reading::kTooLate);
  line_.OnReset("silent", At(6));
  EXPECT_EQ(line_.OnMessage(true, At(6)), Reading::kStale);
  EXPECT_EQ(line_.lease().since(), At(4));
}

TEST_F(ServerLineTest, Refusals_CountAfterARemoteClose_NotAfterASilence) {
  Up();
  line_.OnDisconnected("closed", std::nullopt, At(1));
  line_.OnDisconnected("refused", At(2), At(3));
  EXPECT_EQ(line_.lease().since(), At(2));
  line_.OnConnected(At(4));
  line_.OnReset("silent", At(5));
  line_.OnDisconnected("refused", At(6), At(6));
  EXPECT_EQ(line_.lease().since(), At(2));
}

// Protocol 4.5: no round was assigned without a node that is in touch.
TEST_F(ServerLineTest, InTouch_SurvivesRestartsOfTheServer) {
  Up();
  EXPECT_FALSE(line_.lease().InTouch(At(0))) << "it has had no round";
  line_.OnRound();
  line_.OnDisconnected("closed", std::nullopt, At(1));
  line_.OnDisconnected("refused", At(8), At(8));
  line_.OnDisconnected("refused", At(15), At(15));
  line_.OnConnected(At(17));
  EXPECT_TRUE(line_.lease().InTouch(At(17)));
  line_.OnMessage(false, At(17));
  EXPECT_TRUE(line_.lease().InTouch(At(26.9)));
  EXPECT_FALSE(line_.lease().InTouch(At(27)));
}

TEST_F(ServerLineTest, InTouch_EndsWithTheLease_UntilTheNextRound) {
  Up();
  line_.OnRound();
  line_.TakeHeartbeat(At(2));
  line_.OnMessage(true, At(10));
  EXPECT_FALSE(line_.lease().InTouch(At(10)))
      << "the answer came when the lease was over, although it was asked for before";
  line_.OnRound();
  EXPECT_TRUE(line_.lease().InTouch(At(10)));
  line_.OnDisconnected("closed", std::nullopt, At(11));
  line_.OnDisconnected("refused", At(13), At(13));
  EXPECT_FALSE(line_.lease().InTouch(At(13))) << "it was refused too late";
}

TEST_F(ServerLineTest, InTouch_EndsWithARoundWithoutTheNode) {
  Up();
  line_.OnRound();
  line_.OnMissedRound();
  EXPECT_FALSE(line_.lease().InTouch(At(1)));
}

TEST_F(ServerLineTest, OnEnding_HasNoDeadline) {
  Up();
  line_.OnEnding();
  EXPECT_EQ(line_.NextDeadline(), SteadyTime::InfiniteFuture());
  line_.OnMessage(true, At(1));
  EXPECT_EQ(line_.NextDeadline(), SteadyTime::InfiniteFuture());
  line_.OnDisconnected("closed", std::nullopt, At(2));
  EXPECT_EQ(line_.NextDeadline(), SteadyTime::InfiniteFuture()) << "nobody looks for it";
}

TEST_F(ServerLineTest, OnLeave_WithWorkers_HeartbeatsContinue) {
  Up(absl::Seconds(2));
  line_.SetHasWorkers(true);
  line_.OnEnding();
  line_.OnLeave(true, At(1));
  EXPECT_TRUE(line_.TakeHeartbeat(At(3)));
  EXPECT_TRUE(line_.TakeSilence(At(7)));
  line_.OnReset("silent", At(7));
  EXPECT_EQ(line_.NextDeadline(), SteadyTime::InfiniteFuture()) << "the next stream knows nothing of it";
}

TEST_F(ServerLineTest, OnLeave_WithoutWorkers_HeartbeatsEnd) {
  Up(absl::Seconds(2));
  line_.OnLeave(false, At(1));
  line_.OnEnding();
  EXPECT_EQ(line_.NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST_F(ServerLineTest, ServerInThisProcess_IsNeverSilent) {
  Up(absl::InfiniteDuration());
  EXPECT_EQ(line_.NextDeadline(), SteadyTime::InfiniteFuture());
  EXPECT_EQ(line_.lease().KillAt(), SteadyTime::InfiniteFuture());
}

}  // namespace
}  // namespace ddprun::launcher
