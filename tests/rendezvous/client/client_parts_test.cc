// Parts of the client and the server that need no network.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/endpoint.h"
#include "rendezvous/client/backoff.h"
#include "rendezvous/client/connect_probe.h"
#include "rendezvous/client/resolver.h"
#include "rendezvous/client/stream_end.h"

namespace ddprun::rendezvous {
namespace {

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

struct Probed {
  bool refused;
  SteadyTime began;
};
Probed Probe(const std::string& address) {
  std::promise<Probed> result;
  ConnectProbe probe;
  probe.Start(address, absl::Minutes(1), [&](bool refused, SteadyTime began) { result.set_value({refused, began}); });
  return result.get_future().get();
}

// A socket bound to a free port, with or without listening.
class LocalSocket {
 public:
  LocalSocket(bool ipv6, bool listens) : fd_(socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in6 address = {};
    socklen_t size = ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    address.sin6_family = ipv6 ? AF_INET6 : AF_INET;
    if (ipv6) {
      address.sin6_addr = in6addr_loopback;
    } else {
      reinterpret_cast<sockaddr_in*>(&address)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    bound_ = bind(fd_, reinterpret_cast<sockaddr*>(&address), size) == 0;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    if (listens) listen(fd_, 1);
    address_ = absl::StrCat(ipv6 ? "[::1]:" : "127.0.0.1:", ntohs(address.sin6_port));
  }
  ~LocalSocket() { close(fd_); }
  bool bound() const { return bound_; }
  const std::string& address() const { return address_; }

 private:
  const int fd_;
  bool bound_ = false;
  std::string address_;
};

TEST(ConnectProbeTest, NobodyListens_IsRefused) {
  const LocalSocket socket(false, false);
  const SteadyTime before = SteadyNow();
  const Probed probed = Probe(socket.address());
  EXPECT_TRUE(probed.refused);
  EXPECT_GE(probed.began, before);
  EXPECT_LE(probed.began, SteadyNow());
  const LocalSocket six(true, false);
  if (six.bound()) {
    EXPECT_TRUE(Probe(six.address()).refused);
  }
}

TEST(ConnectProbeTest, SomebodyListens_IsNotRefused) {
  const LocalSocket socket(false, true);
  EXPECT_FALSE(Probe(socket.address()).refused);
}

TEST(ConnectProbeTest, NoAddressOrNoWayThere_IsNotRefused) {
  for (const char* address : {"", "name:1", "127.0.0.1", "[fe80::1%nowhere]:29400"}) {
    EXPECT_FALSE(Probe(address).refused) << address;
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
