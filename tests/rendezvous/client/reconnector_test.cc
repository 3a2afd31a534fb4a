// The logic by which a client finds its server and reconnects, without a network.
#include "rendezvous/client/reconnector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddprun::rendezvous {
namespace {

constexpr SteadyTime kStart = SteadyTime::FromStart(absl::Seconds(1000));
constexpr char kA[] = "10.0.0.1:29400";
constexpr char kB[] = "10.0.0.2:29400";

class ReconnectorTest : public ::testing::Test {
 protected:
  ReconnectorTest() : client_({"server", "server:29400", absl::Milliseconds(250), 1}) {
    client_.Start(&effects_);
    EXPECT_EQ(Take(), "resolve");
  }

  // Describes the effects in one or two words each, and clears them.
  std::string Take() {
    std::vector<std::string> words;
    for (const ReconnectEffect& e : effects_) {
      if (const auto* resolve = std::get_if<reconnect::Resolve>(&e)) {
        words.push_back(resolve->leader.empty() ? "resolve" : absl::StrCat("resolve ", resolve->leader));
      }
      if (const auto* connect = std::get_if<reconnect::Connect>(&e)) {
        words.push_back(absl::StrCat("connect ", connect->stream, " ", connect->target));
        timeout_ = connect->timeout;
      }
      if (const auto* probe = std::get_if<reconnect::Probe>(&e)) words.push_back(absl::StrCat("probe ", probe->target));
      if (const auto* close = std::get_if<reconnect::Close>(&e)) words.push_back(absl::StrCat("close ", close->stream));
      if (const auto* cut = std::get_if<reconnect::Abandon>(&e)) words.push_back(absl::StrCat("abandon ", cut->stream));
      if (const auto* report = std::get_if<reconnect::Report>(&e)) {
        if (const auto* lost = std::get_if<Disconnected>(&report->event)) {
          words.push_back(lost->permanent ? "over" : lost->refused ? "refused" : "lost");
          lost_ = *lost;
        } else {
          words.push_back(std::holds_alternative<Connected>(report->event) ? "connected" : "message");
        }
      }
    }
    effects_.clear();
    return absl::StrJoin(words, ", ");
  }
  std::string Resolved(std::vector<std::string> targets) {
    std::vector<ServerAddress> addresses;
    for (const std::string& target : targets) addresses.push_back({target, "server"});
    client_.OnResolved(addresses, now_, &effects_);
    return Take();
  }
  std::string Open(uint64_t stream, int64_t epoch = 0) {
    client_.OnOpen(stream, epoch, &effects_);
    return Take();
  }
  std::string Speak(uint64_t stream) {
    client_.OnMessage(stream, HeartbeatAck{}, &effects_);
    return Take();
  }
  std::string End(uint64_t stream, StreamProgress progress, absl::Status status = absl::UnavailableError("any words")) {
    client_.OnEnd(stream, {progress, status}, now_, &effects_);
    return Take();
  }
  // A follower answers with the latest epoch and the leader.
  std::string Follower(uint64_t stream, int64_t epoch, const std::string& leader) {
    client_.OnEnd(stream, {StreamProgress::kFollower, absl::FailedPreconditionError("not here"), {leader, epoch}}, now_,
                  &effects_);
    return Take();
  }
  std::string Probed(uint64_t probe, bool refused) {
    client_.OnProbed(probe, refused ? std::make_optional(now_) : std::nullopt, now_, &effects_);
    return Take();
  }
  std::string Due() {
    now_ = client_.NextDeadline();
    client_.OnDeadline(now_, &effects_);
    return Take();
  }
  // Opens stream 1 to kA.
  void Work() {
    Resolved({kA});
    Open(1);
    ASSERT_EQ(Speak(1), "message");
  }

  SteadyTime now_ = kStart;
  Reconnector client_;
  Reconnector::Effects effects_;
  absl::Duration timeout_;
  Disconnected lost_;
};

TEST_F(ReconnectorTest, Addresses_AreTriedAtOnceAndToldOnce) {
  EXPECT_EQ(Resolved({kA, kB}), absl::StrCat("connect 1 ", kA, ", connect 2 ", kB));
  EXPECT_EQ(timeout_, absl::Seconds(5));
  EXPECT_EQ(End(1, StreamProgress::kNone, absl::UnavailableError("No route to host")), "");
  EXPECT_EQ(End(2, StreamProgress::kTimedOut), "lost") << "no probe: no server was ever there";
  EXPECT_EQ(lost_.reason, absl::StrCat("tried ", kA, ": no route to host; ", kB, ": no answer"));
  EXPECT_EQ(Due(), "resolve") << "the name may stand for others by now";
}

TEST_F(ReconnectorTest, FirstThatAnswers_IsTakenAndTheOthersAreGivenUp) {
  Resolved({kA, kB});
  EXPECT_EQ(Open(2), "abandon 1, connected");
  EXPECT_EQ(Open(1), "");
  EXPECT_EQ(End(1, StreamProgress::kAbandoned), "");
  EXPECT_EQ(client_.Admit(Join{}), 2u);
}

TEST_F(ReconnectorTest, NameUnknown_OnTry_IsReportedAndRetried) {
  client_.OnResolved(absl::NotFoundError("Name or service not known"), now_, &effects_);
  EXPECT_EQ(Take(), "lost");
  EXPECT_EQ(lost_.reason, "tried server: name or service not known");
  EXPECT_EQ(Due(), "resolve");
}

TEST_F(ReconnectorTest, StreamThatWorkedBreaks_AnotherComesAtOnceThenLater) {
  Work();
  now_ = now_ + absl::Seconds(60);
  EXPECT_EQ(End(1, StreamProgress::kOpen), absl::StrCat("lost, connect 2 ", kA));
  EXPECT_EQ(timeout_, absl::Milliseconds(250)) << "the patience";
  EXPECT_EQ(End(2, StreamProgress::kTimedOut), "lost");
  const absl::Duration wait = client_.NextDeadline() - now_;
  EXPECT_GT(wait, absl::Milliseconds(4));
  EXPECT_LE(wait, absl::Milliseconds(10));
  EXPECT_EQ(Due(), absl::StrCat("connect 3 ", kA)) << "the addresses still stand";
}

TEST_F(ReconnectorTest, TriesAfterALoss_LastHalfOfTheTimeSinceIt) {
  Work();
  End(1, StreamProgress::kOpen);
  now_ = now_ + absl::Seconds(4);
  End(2, StreamProgress::kTimedOut);
  Due();
  EXPECT_GE(timeout_, absl::Seconds(2));
  EXPECT_LT(timeout_, absl::Seconds(2.1));
  now_ = now_ + absl::Seconds(7);
  End(3, StreamProgress::kTimedOut);
  EXPECT_EQ(Due(), "resolve") << "ten seconds are over";
  Resolved({kB});
  EXPECT_GE(timeout_, absl::Seconds(5.5)) << "nothing came back so far: the server may be slow";
  EXPECT_LT(timeout_, absl::Seconds(5.6));
}

// Evidence that the server is gone (protocol 4.5): the kernel refuses a connection that was started after the loss.
TEST_F(ReconnectorTest, TryFailsAtOnceWhereTheServerWas_TheProbeDecides) {
  Work();
  End(1, StreamProgress::kOpen);
  EXPECT_EQ(End(2, StreamProgress::kNone), absl::StrCat("probe ", kA)) << "whatever gRPC's words are";
  const SteadyTime began = now_;
  now_ = now_ + absl::Milliseconds(2);
  client_.OnProbed(1, began, now_, &effects_);
  EXPECT_EQ(Take(), "refused");
  EXPECT_EQ(lost_.refused, began);
  EXPECT_EQ(Due(), absl::StrCat("connect 3 ", kA));
  EXPECT_EQ(End(3, StreamProgress::kNone, absl::UnavailableError("Connection refused")), absl::StrCat("probe ", kA));
  client_.OnProbed(2, std::nullopt, now_, &effects_);
  EXPECT_EQ(Take(), "lost") << "gRPC's words alone are no evidence";
}

TEST_F(ReconnectorTest, TryThatIsNotAnsweredOrFailsElsewhere_IsNotProbed) {
  Resolved({kA, kB});
  End(1, StreamProgress::kNone);
  Open(2);
  Speak(2);
  EXPECT_EQ(End(2, StreamProgress::kOpen), absl::StrCat("lost, connect 3 ", kA, ", connect 4 ", kB));
  EXPECT_EQ(End(3, StreamProgress::kNone), "") << "the server was at the other address";
  EXPECT_EQ(End(4, StreamProgress::kTimedOut), "lost");
  Due();
  End(5, StreamProgress::kNone);
  EXPECT_EQ(End(6, StreamProgress::kNone, absl::UnimplementedError("HTTP 404")), "lost") << "another program listens";
}

TEST_F(ReconnectorTest, AnswersOfAnOlderProbe_AreDropped) {
  Work();
  End(1, StreamProgress::kOpen);
  End(2, StreamProgress::kNone);
  client_.OnProbed(1, std::nullopt, now_, &effects_);
  Take();
  client_.OnProbed(1, now_, now_, &effects_);
  EXPECT_EQ(Take(), "");
}

TEST_F(ReconnectorTest, Reset_TheSilentStreamIsKeptUntilTheServerHasSpokenOnAnother) {
  Work();
  client_.Reset(now_);
  EXPECT_EQ(client_.Admit(Heartbeat{}), std::nullopt);
  EXPECT_EQ(Speak(1), "") << "it is given up";
  EXPECT_EQ(Due(), absl::StrCat("lost, connect 2 ", kA));
  EXPECT_EQ(lost_.reason, "server:29400: not responding");
  EXPECT_EQ(Open(2), "connected");
  EXPECT_EQ(Speak(2), "abandon 1, message");
  EXPECT_EQ(End(1, StreamProgress::kAbandoned), "");
}

TEST_F(ReconnectorTest, Refused_IsOver) {
  Resolved({kA});
  Open(1);
  EXPECT_EQ(End(1, StreamProgress::kOpen, absl::FailedPreconditionError("nnodes differs")), "over");
  EXPECT_EQ(client_.NextDeadline(), SteadyTime::InfiniteFuture());
  EXPECT_TRUE(client_.over());
}

TEST_F(ReconnectorTest, Admit_AJoinFirstAndOnlyOnAnOpenStream) {
  EXPECT_EQ(client_.Admit(Join{}), std::nullopt);
  Resolved({kA});
  EXPECT_EQ(client_.Admit(Join{}), std::nullopt);
  Open(1);
  EXPECT_EQ(client_.Admit(Heartbeat{}), std::nullopt);
  EXPECT_EQ(client_.Admit(Join{}), 1u);
  EXPECT_EQ(client_.Admit(Join{}), std::nullopt);
  EXPECT_EQ(client_.Admit(Heartbeat{}), 1u);
}

TEST_F(ReconnectorTest, Close_EndsAllStreamsAndNothingFollows) {
  Work();
  client_.Reset(now_);
  Due();
  Open(2);
  client_.Close(false, &effects_);
  EXPECT_EQ(Take(), "close 2, abandon 1");
  EXPECT_EQ(End(2, StreamProgress::kOpen, absl::OkStatus()), "");
  EXPECT_EQ(client_.NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST_F(ReconnectorTest, CloseAtOnce_WhileConnecting) {
  Resolved({kA});
  client_.Close(true, &effects_);
  EXPECT_EQ(Take(), "abandon 1");
  EXPECT_EQ(Open(1), "");
}

// Several servers: A leads with epoch 7, B follows (protocol 4.8).
class SeveralServersTest : public ReconnectorTest {
 protected:
  void SetUp() override {
    Resolved({kA, kB});
    EXPECT_EQ(Follower(2, 7, kA), "");
    EXPECT_EQ(Open(1, 7), "connected");
    Speak(1);
    EXPECT_EQ(End(1, StreamProgress::kOpen), absl::StrCat("lost, connect 3 ", kA, ", connect 4 ", kB));
  }
};

TEST_F(SeveralServersTest, LeaderKilled_FollowersKnowNoOther_CountsAsEnded) {
  EXPECT_EQ(Follower(4, 7, kA), "");
  EXPECT_EQ(End(3, StreamProgress::kNone), absl::StrCat("probe ", kA));
  EXPECT_EQ(Probed(1, true), "lost") << "in this round the follower was asked before the refusal";
  EXPECT_EQ(Due(), absl::StrCat("connect 5 ", kA, ", connect 6 ", kB));
  const SteadyTime asked = now_;
  now_ = now_ + absl::Milliseconds(3);
  Follower(6, 7, kA);
  End(5, StreamProgress::kNone);
  EXPECT_EQ(Probed(2, true), "refused");
  EXPECT_EQ(lost_.refused, asked) << "when it was asked, not when it answered";
  Due();
  Follower(8, 9, "");
  End(7, StreamProgress::kNone);
  EXPECT_EQ(Probed(3, true), "lost") << "another server has led meanwhile";
}

TEST_F(SeveralServersTest, RefusalAlone_ProvesNothing) {
  for (int i = 0; i < 3; ++i) {
    End(3 + 2 * i, StreamProgress::kNone);
    EXPECT_EQ(End(4 + 2 * i, StreamProgress::kNone), "");
    EXPECT_EQ(Probed(1 + i, true), "lost");
    Due();
  }
}

TEST_F(SeveralServersTest, CutOffFromLeader_FollowersNameLeader_ProvesNothing) {
  for (uint64_t stream = 3; stream < 9; stream += 2) {
    Follower(stream + 1, 7, kA);
    EXPECT_EQ(End(stream, StreamProgress::kTimedOut), "lost");
    Due();
  }
  Follower(10, 7, "");
  EXPECT_EQ(End(9, StreamProgress::kTimedOut), "lost");
  Due();
  Follower(12, 7, "");
  EXPECT_EQ(End(11, StreamProgress::kTimedOut), "refused") << "its lease has expired";
}

TEST_F(SeveralServersTest, HostThatNeverAnswers_IsNotWaitedFor) {
  EXPECT_EQ(Follower(4, 7, ""), "");
  EXPECT_EQ(client_.NextDeadline(), now_ + absl::Milliseconds(250));
  EXPECT_EQ(Due(), "lost");
  EXPECT_EQ(lost_.reason, absl::StrCat("tried ", kB, ": not here; ", kA, ": no answer"));
  EXPECT_LE(client_.NextDeadline() - now_, absl::Milliseconds(10));
  EXPECT_EQ(Due(), absl::StrCat("connect 5 ", kB)) << "the other try goes on";
  EXPECT_EQ(Follower(5, 7, ""), "");
  EXPECT_EQ(Due(), "refused") << "nobody leads, as the follower had said before";
  EXPECT_EQ(Open(3, 7), "connected") << "also between rounds";
  EXPECT_EQ(Open(5), "");
}

TEST_F(SeveralServersTest, FollowerNamesAnUnknownLeader_WhichIsTriedAtOnce) {
  End(3, StreamProgress::kTimedOut);
  EXPECT_EQ(Follower(4, 9, "node3:29400"), "lost, resolve node3:29400");
  EXPECT_EQ(Resolved({kA, kB, "10.0.0.3:29400"}),
            absl::StrCat("connect 5 ", kA, ", connect 6 ", kB, ", connect 7 10.0.0.3:29400"));
  EXPECT_EQ(Open(7, 9), "abandon 5, abandon 6, connected");
}

TEST_F(SeveralServersTest, LostLeader_IsNamed) { EXPECT_EQ(lost_.reason, absl::StrCat(kA, ": any words")); }

// One follower may have old credentials.
TEST_F(SeveralServersTest, FollowersRefuse_OthersDoNotAnswer_IsNotFinal) {
  const absl::Status refusal = absl::UnauthenticatedError("invalid token");
  EXPECT_EQ(End(4, StreamProgress::kFollower, refusal), "");
  EXPECT_EQ(End(3, StreamProgress::kTimedOut), "lost");
  EXPECT_EQ(lost_.reason, absl::StrCat("tried ", kB, ": invalid token; ", kA, ": no answer"));
  Due();
  EXPECT_EQ(End(5, StreamProgress::kFollower, refusal), "");
  EXPECT_EQ(End(6, StreamProgress::kFollower, absl::PermissionDeniedError("not you")), "over");
  EXPECT_EQ(lost_.reason, absl::StrCat("rendezvous server at ", kB, " refused: not you"));
}

TEST(BackoffTest, Next_DoublesFromTenMillisecondsToASecond) {
  Backoff backoff(1);
  absl::Duration bound = absl::Milliseconds(10);
  for (int i = 0; i < 12; ++i) {
    const absl::Duration wait = backoff.Next();
    EXPECT_LE(wait, bound);
    EXPECT_GE(wait, bound / 2);
    bound = std::min(bound * 2, absl::Seconds(1));
  }
}

TEST(BackoffTest, Next_WithoutAnswer_WaitsAndTriesGetLongerUntilThereIsOne) {
  Backoff backoff(3);
  EXPECT_EQ(backoff.longest_try(), absl::Seconds(5));
  absl::Duration wait;
  for (int i = 0; i < 12; ++i) wait = backoff.Next(true);
  EXPECT_GE(wait, absl::Seconds(2));
  EXPECT_LE(wait, absl::Seconds(4));
  EXPECT_EQ(backoff.longest_try(), absl::Seconds(10));
  EXPECT_LE(backoff.Next(false), absl::Seconds(1)) << "refused: the server may be back at any moment";
  EXPECT_EQ(backoff.longest_try(), absl::Seconds(5));
}

TEST(BackoffTest, Reset_NextIsAtOnceAndOnlyThat) {
  Backoff backoff(2);
  for (int i = 0; i < 8; ++i) backoff.Next();
  backoff.Reset();
  EXPECT_EQ(backoff.Next(), absl::ZeroDuration());
  EXPECT_GE(backoff.Next(), absl::Milliseconds(5));
}

TEST(StreamEndTest, DescribeEnd_SaysWhatHappenedInOneLine) {
  struct Case {
    StreamProgress progress;
    absl::Status status;
    std::string reason;
    bool permanent = false;
  };
  const Case cases[] = {
      {StreamProgress::kNone,
       absl::UnavailableError("failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:29400: Failed "
                              "to connect to remote host: Connection refused"),
       "S: connection refused"},
      {StreamProgress::kNone, absl::UnavailableError("Name or service not known"), "S: name or service not known"},
      {StreamProgress::kNone,
       absl::UnavailableError("DNS resolution failed for a.invalid:1: C-ares status is not ARES_SUCCESS qtype=A "
                              "name=a.invalid is_balancer=0: Domain name not found"),
       "S: can't resolve the host name: domain name not found"},
      {StreamProgress::kNone, absl::UnavailableError("UNAVAILABLE: ipv6:%5B::1%5D:29400: Socket closed"),
       "S: socket closed"},
      {StreamProgress::kNone, absl::UnimplementedError(""), "S: not a ddprun rendezvous server"},
      {StreamProgress::kTimedOut, absl::CancelledError(), "S: no answer"},
      {StreamProgress::kAbandoned, absl::CancelledError(), "S: not responding"},
      {StreamProgress::kOpen, absl::UnavailableError("recvmsg:Connection reset by peer"),
       "S: connection reset by peer"},
      {StreamProgress::kOpen, absl::UnavailableError(""), "S: connection lost"},
      {StreamProgress::kOpen, absl::OkStatus(), "S: connection closed by the server"},
      {StreamProgress::kOpen, absl::AbortedError("two\nlines"), "rendezvous server at S refused: two lines", true},
      {StreamProgress::kOpen, absl::FailedPreconditionError("nnodes differs"),
       "rendezvous server at S refused: nnodes differs", true},
      {StreamProgress::kOpen, absl::InvalidArgumentError("join.slots: ..."),
       "rendezvous server at S refused: join.slots: ...", true},
  };
  for (const Case& c : cases) {
    const Disconnected end = DescribeEnd("S", c.progress, c.status);
    EXPECT_EQ(end.reason, c.reason);
    EXPECT_EQ(end.permanent, c.permanent) << c.reason;
  }
}

TEST(StreamEndTest, IsTlsFailure_NotOfAHostThatIsNotReached) {
  constexpr auto kNone = StreamProgress::kNone;
  EXPECT_TRUE(IsTlsFailure(kNone, absl::UnavailableError("last error: UNKNOWN: ipv4:10.0.0.1:1: Socket closed")));
  EXPECT_FALSE(IsTlsFailure(kNone, absl::UnavailableError("Failed to connect to remote host: Connection refused")));
  EXPECT_FALSE(IsTlsFailure(kNone, absl::UnavailableError("DNS resolution failed for a.invalid:1: not found")));
}

}  // namespace
}  // namespace ddprun::rendezvous
