// How a client finds its server and finds it again, without any network.
#include "rendezvous/client/reconnector.h"

#include <gtest/gtest.h>

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

  // One word or two per effect.
  std::string Take() {
    std::vector<std::string> words;
    for (const ReconnectEffect& e : effects_) {
      if (std::holds_alternative<reconnect::Resolve>(e)) words.push_back("resolve");
      if (const auto* connect = std::get_if<reconnect::Connect>(&e)) {
        words.push_back(absl::StrCat("connect ", connect->stream, " ", connect->target));
        timeout_ = connect->timeout;
      }
      if (const auto* probe = std::get_if<reconnect::Probe>(&e)) words.push_back(absl::StrCat("probe ", probe->target));
      if (const auto* close = std::get_if<reconnect::Close>(&e)) words.push_back(absl::StrCat("close ", close->stream));
      if (const auto* cut = std::get_if<reconnect::Abandon>(&e)) words.push_back(absl::StrCat("abandon ", cut->stream));
      if (const auto* tell = std::get_if<reconnect::Tell>(&e)) {
        if (const auto* lost = std::get_if<Disconnected>(&tell->event)) {
          words.push_back(lost->permanent ? "over" : lost->refused ? "refused" : "lost");
          lost_ = *lost;
        } else {
          words.push_back(std::holds_alternative<Connected>(tell->event) ? "connected" : "message");
        }
      }
    }
    effects_.clear();
    return absl::StrJoin(words, ", ");
  }
  std::string Resolved(std::vector<std::string> targets) {
    client_.OnResolved(targets, now_, &effects_);
    return Take();
  }
  std::string Open(uint64_t stream) {
    client_.OnOpen(stream, &effects_);
    return Take();
  }
  std::string Speak(uint64_t stream) {
    client_.OnMessage(stream, HeartbeatAck{}, &effects_);
    return Take();
  }
  std::string End(uint64_t stream, StreamProgress progress, absl::Status status = absl::UnavailableError("any words")) {
    client_.OnEnd(stream, progress, status, now_, &effects_);
    return Take();
  }
  std::string Due() {
    now_ = client_.NextDeadline();
    client_.OnDeadline(now_, &effects_);
    return Take();
  }
  // Stream 1 works, at kA.
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

TEST_F(ReconnectorTest, Addresses_AreTriedInTurnAndToldOnce) {
  EXPECT_EQ(Resolved({kA, kB}), absl::StrCat("connect 1 ", kA));
  EXPECT_EQ(timeout_, absl::Seconds(5));
  EXPECT_EQ(End(1, StreamProgress::kNone, absl::UnavailableError("No route to host")), absl::StrCat("connect 2 ", kB));
  EXPECT_EQ(End(2, StreamProgress::kTimedOut), "lost") << "no probe: no server was ever there";
  EXPECT_EQ(lost_.reason, absl::StrCat("tried ", kA, ": no route to host; ", kB, ": no answer"));
  EXPECT_EQ(Due(), "resolve") << "the name may stand for others by now";
}

TEST_F(ReconnectorTest, NameUnknown_IsToldAndAskedAgain) {
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

// Evidence that the server is gone (protocol 4.5): what the kernel says of a connection that is begun after the loss.
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
  EXPECT_EQ(End(2, StreamProgress::kOpen), absl::StrCat("lost, connect 3 ", kA));
  EXPECT_EQ(End(3, StreamProgress::kNone), absl::StrCat("connect 4 ", kB)) << "the server was at the other address";
  EXPECT_EQ(End(4, StreamProgress::kTimedOut), "lost");
  Due();
  End(5, StreamProgress::kNone);
  EXPECT_EQ(End(6, StreamProgress::kNone, absl::UnimplementedError("HTTP 404")), "lost") << "somebody is there";
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

}  // namespace
}  // namespace ddprun::rendezvous
