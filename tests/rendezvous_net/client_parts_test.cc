// The small parts of the client and the server that need no network.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "rendezvous/client/backoff.h"
#include "rendezvous/client/resolver.h"
#include "rendezvous/client/stream_end.h"
#include "rendezvous/wire/host_port.h"

namespace ddprun::rendezvous {
namespace {

TEST(HostPortTest, Parse_GoodAddresses_RoundTrip) {
  for (const char* text : {"127.0.0.1:29400", "[::1]:0", "[fe80::1%eth0]:65535", "node-7.example:1"}) {
    const auto address = ParseHostPort(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(ToString(*address), text);
  }
  EXPECT_EQ(ParseHostPort("[::1]:5")->host, "::1");
}

TEST(ResolverTest, Literal_AddressesOnly) {
  EXPECT_EQ(Resolver::Literal({"10.0.0.1", 29400}), "ipv4:10.0.0.1:29400");
  EXPECT_EQ(Resolver::Literal({"::1", 29400}), "ipv6:[::1]:29400");
  EXPECT_EQ(Resolver::Literal({"localhost", 29400}), std::nullopt);
}

TEST(ResolverTest, AddressOf_IsWhatWasTried) {
  EXPECT_EQ(Resolver::AddressOf("ipv4:10.0.0.1:29400"), "10.0.0.1:29400");
  EXPECT_EQ(Resolver::AddressOf("ipv6:[fe80::1%25eth0]:29400"), "[fe80::1%eth0]:29400");
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
      {StreamProgress::kNone, absl::UnavailableError("UNAVAILABLE: ipv6:%5B::1%5D:29400: Socket closed"),
       "S: socket closed"},
      {StreamProgress::kNone, absl::UnimplementedError(""), "S: what answers is not a ddprun rendezvous server"},
      {StreamProgress::kTimedOut, absl::CancelledError(), "S: no answer"},
      {StreamProgress::kAbandoned, absl::CancelledError(), "rendezvous server at S is silent"},
      {StreamProgress::kOpen, absl::UnavailableError("recvmsg:Connection reset by peer"),
       "lost rendezvous server at S: connection reset by peer"},
      {StreamProgress::kOpen, absl::UnavailableError(""), "lost rendezvous server at S: connection lost"},
      {StreamProgress::kOpen, absl::OkStatus(), "rendezvous server at S ended the stream"},
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

// Whatever else happens to an attempt, the server may be there.
TEST(StreamEndTest, IsNobodyThere_OnlyWhereTheConnectionIsRefused) {
  const auto failed = [](const char* why) {
    return absl::UnavailableError(
        absl::StrCat("failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:29400: ", why));
  };
  const auto refused = failed("Failed to connect to remote host: Connection refused");
  EXPECT_TRUE(IsNobodyThere(StreamProgress::kNone, refused));
  EXPECT_FALSE(IsNobodyThere(StreamProgress::kOpen, refused));
  for (const char* why : {"Failed to connect to remote host: No route to host", "Network is unreachable",
                          "connection attempt timed out before receiving SETTINGS frame",
                          "Failed to connect to remote host: Connection timed out"}) {
    EXPECT_FALSE(IsNobodyThere(StreamProgress::kNone, failed(why))) << why;
  }
  EXPECT_FALSE(IsNobodyThere(StreamProgress::kTimedOut, absl::CancelledError()));
}

}  // namespace
}  // namespace ddprun::rendezvous
