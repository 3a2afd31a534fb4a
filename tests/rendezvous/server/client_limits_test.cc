#include "rendezvous/server/client_limits.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous {
namespace {

using Id = ConnectionLimits::Id;

SteadyTime At(absl::Duration since_start) { return SteadyTime::FromStart(since_start); }
Id Fd(int fd) { return Id{fd, static_cast<uint64_t>(1000 + fd)}; }
PeerAddress Peer(const std::string& host, int port) { return PeerAddress{host, port}; }

// Opens one that has to have room without anybody going.
void Open(ConnectionLimits* limits, int fd, const PeerAddress& peer) {
  const auto surplus = limits->Open(Fd(fd), peer, At(absl::ZeroDuration()));
  ASSERT_TRUE(surplus.ok()) << surplus.status();
  EXPECT_TRUE(surplus->empty());
}

TEST(ConnectionLimitsTest, TooManyWait_TheOldestWithoutASessionGoes) {
  ConnectionLimits limits({.waiting = 2});
  for (int fd = 1; fd <= 3; ++fd) {
    Open(&limits, fd, Peer("a", fd));
    if (fd == 1) limits.OnSessionStarted(Peer("a", 1));
  }
  const auto surplus = limits.Open(Fd(4), Peer("b", 4), At(absl::ZeroDuration()));
  ASSERT_TRUE(surplus.ok());
  EXPECT_EQ(*surplus, std::vector<Id>{Fd(2)});
  EXPECT_EQ(limits.EvictOldest(), Fd(3));
  EXPECT_EQ(limits.EvictOldest(), Fd(4));
  EXPECT_EQ(limits.EvictOldest(), std::nullopt) << "what has a session stays";
  limits.OnSessionClosed(Peer("a", 1));
  EXPECT_EQ(limits.EvictOldest(), Fd(1));
}

TEST(ConnectionLimitsTest, SeveralSessions_TheLastOneCounts) {
  ConnectionLimits limits({});
  Open(&limits, 1, Peer("a", 1));
  limits.OnSessionStarted(Peer("a", 1));
  limits.OnSessionStarted(Peer("a", 1));
  limits.OnSessionClosed(Peer("a", 1));
  EXPECT_EQ(limits.EvictOldest(), std::nullopt);
  limits.OnSessionClosed(Peer("a", 1));
  limits.OnSessionClosed(Peer("a", 1));
  limits.OnSessionStarted(Peer("nobody", 1));
  EXPECT_EQ(limits.EvictOldest(), Fd(1));
}

TEST(ConnectionLimitsTest, TooManyOfOneAddress_ItsOwnOldestGoes) {
  ConnectionLimits limits({.per_address = 2});
  Open(&limits, 1, Peer("other", 1));
  Open(&limits, 2, Peer("a", 2));
  Open(&limits, 3, Peer("a", 3));
  EXPECT_EQ(*limits.Open(Fd(4), Peer("a", 4), At(absl::ZeroDuration())), std::vector<Id>{Fd(2)});
  limits.OnSessionStarted(Peer("a", 3));
  limits.OnSessionStarted(Peer("a", 4));
  EXPECT_TRUE(absl::IsResourceExhausted(limits.Open(Fd(5), Peer("a", 5), At(absl::ZeroDuration())).status()));
  Open(&limits, 5, Peer("b", 5));
}

TEST(ConnectionLimitsTest, TooManyInAll_RefusedIfAllHaveSessions) {
  ConnectionLimits limits({.connections = 2});
  for (int fd = 1; fd <= 2; ++fd) {
    Open(&limits, fd, Peer("a", fd));
    limits.OnSessionStarted(Peer("a", fd));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(limits.Open(Fd(3), Peer("b", 3), At(absl::ZeroDuration())).status()));
  limits.OnSessionClosed(Peer("a", 2));
  EXPECT_EQ(*limits.Open(Fd(3), Peer("b", 3), At(absl::ZeroDuration())), std::vector<Id>{Fd(2)});
}

TEST(ConnectionLimitsTest, StreamsWithoutAJoin_TheConnectionGoes) {
  ConnectionLimits limits({.streams = 2});
  const SteadyTime now = At(absl::ZeroDuration());
  Open(&limits, 1, Peer("a", 1));
  Open(&limits, 2, Peer("a", 2));
  for (int i = 0; i < 5; ++i) {  // streams of a proxy
    EXPECT_EQ(limits.OnStreamStarted(Peer("a", 1), now), std::nullopt);
    limits.OnSessionStarted(Peer("a", 1));
  }
  EXPECT_EQ(limits.OnStreamStarted(Peer("a", 2), now), std::nullopt);
  EXPECT_EQ(limits.OnStreamStarted(Peer("a", 2), now), std::nullopt);
  EXPECT_EQ(limits.OnStreamStarted(Peer("a", 2), now), Fd(2));
  EXPECT_EQ(limits.OnStreamStarted(Peer("nobody", 2), now), std::nullopt);
}

TEST(ConnectionLimitsTest, StreamsWithoutAJoin_CountAsConnections) {
  ConnectionLimits limits(
      {.interval = absl::Seconds(1), .burst = 13, .streams = 2, .stream_cost = 2, .excess_stream_cost = 6});
  const auto is_taken = [&](int fd, int second) {
    return limits.Open(Fd(fd), Peer("a", fd), At(absl::Seconds(second))).ok();
  };
  EXPECT_TRUE(is_taken(1, 0));
  for (int i = 0; i < 3; ++i) limits.OnStreamStarted(Peer("a", 1), At(absl::ZeroDuration()));
  EXPECT_TRUE(is_taken(2, 0));  // 1 + 2 + 2 + 6 + 1 by now
  EXPECT_TRUE(is_taken(3, 0));
  EXPECT_FALSE(is_taken(4, 0));
  limits.OnSessionStarted(Peer("a", 1));
  for (int fd = 5; fd < 11; ++fd) EXPECT_TRUE(is_taken(fd, 0)) << "with its Join a stream does not count";
  EXPECT_FALSE(is_taken(11, 0));
}

// gRPC is given few connections at a time that have not brought a Join, however many an address has.
TEST(ConnectionLimitsTest, Enter_FewAtATime) {
  using Entry = ConnectionLimits::Entry;
  ConnectionLimits limits({.interval = absl::Seconds(1),
                           .burst = 20,
                           .entries = 2,
                           .entry_interval = absl::Seconds(1),
                           .excess_stream_cost = 100});
  for (int fd = 1; fd <= 6; ++fd) Open(&limits, fd, Peer("a", fd));
  Open(&limits, 7, Peer("b", 7));
  const SteadyTime now = At(absl::ZeroDuration());
  EXPECT_EQ(limits.Enter(Fd(1), now), Entry::kNow);
  EXPECT_EQ(limits.Enter(Fd(2), now), Entry::kNow);
  EXPECT_EQ(limits.Enter(Fd(3), now), Entry::kLater);
  EXPECT_EQ(limits.Enter(Fd(7), now), Entry::kNow) << "each address by itself";
  EXPECT_EQ(limits.Enter(Fd(3), At(absl::Seconds(1))), Entry::kNow);
  EXPECT_EQ(limits.Enter(Fd(4), At(absl::Seconds(1))), Entry::kLater);
  for (int i = 0; i < 2; ++i) limits.OnSessionStarted(Peer("a", 1));
  EXPECT_EQ(limits.Enter(Fd(4), At(absl::Seconds(1))), Entry::kNow) << "one has brought its Join";
  EXPECT_EQ(limits.Enter(Fd(5), At(absl::Seconds(1))), Entry::kLater) << "only one";
  for (int i = 0; i < 17; ++i) limits.OnStreamStarted(Peer("a", 2), now);
  EXPECT_EQ(limits.Enter(Fd(6), At(absl::Seconds(9))), Entry::kNever) << "too much counts against the address";
  EXPECT_EQ(limits.Enter(Id{1, 1}, now), Entry::kNever);
}

// The end of a connection shows only when its descriptor is used again.
TEST(ConnectionLimitsTest, DescriptorIsUsedAgain_TheConnectionBeforeIsForgotten) {
  ConnectionLimits limits({.per_address = 2});
  Open(&limits, 1, Peer("a", 1));
  limits.OnSessionStarted(Peer("a", 1));
  Open(&limits, 2, Peer("a", 2));
  for (int i = 0; i < 10; ++i) Open(&limits, 1, Peer("a", 100 + i));
  limits.OnSessionClosed(Peer("a", 1));  // late
  EXPECT_EQ(limits.EvictOldest(), Fd(2));
  EXPECT_EQ(limits.EvictOldest(), Fd(1));
  EXPECT_EQ(limits.EvictOldest(), std::nullopt);
}

TEST(ConnectionLimitsTest, PeerIsUsedAgain_ItsSessionIsThatOfTheNewConnection) {
  ConnectionLimits limits({});
  Open(&limits, 1, Peer("a", 1));
  Open(&limits, 2, Peer("a", 1));
  limits.OnSessionStarted(Peer("a", 1));
  EXPECT_EQ(limits.EvictOldest(), Fd(1));
  EXPECT_EQ(limits.EvictOldest(), std::nullopt);
}

TEST(ConnectionLimitsTest, TooFast_RefusedUntilTheAddressHasRested) {
  ConnectionLimits limits({.interval = absl::Milliseconds(10), .burst = 3});
  const auto open = [&](const std::string& host, int ms) {
    return limits.Open(Fd(1), Peer(host, 1), At(absl::Milliseconds(ms))).ok();
  };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(open("a", 0));
  EXPECT_FALSE(open("a", 9));
  EXPECT_TRUE(open("b", 9)) << "each address by itself";
  EXPECT_TRUE(open("a", 10));
  EXPECT_FALSE(open("a", 19));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(open("a", 1000));
  EXPECT_FALSE(open("a", 1000));
}

// Launchers behind one address whose server is restarted again and again.
TEST(ConnectionLimitsTest, Defaults_LetThousandsReconnectAtOnce) {
  ConnectionLimits limits({});
  for (int round = 0; round < 3; ++round) {
    for (int fd = 0; fd < 4000; ++fd) {
      const PeerAddress peer = Peer("a", 5000 * round + fd);
      const auto surplus = limits.Open(Fd(fd), peer, At(absl::Seconds(round)));
      ASSERT_TRUE(surplus.ok()) << surplus.status();
      ASSERT_TRUE(surplus->empty());
      limits.OnStreamStarted(peer, At(absl::Seconds(round)));
      limits.OnSessionStarted(peer);
    }
  }
}

TEST(ConnectionLimitsTest, RestedAddresses_AreForgottenOthersAreNot) {
  ConnectionLimits limits({.interval = absl::Seconds(1), .burst = 1});
  EXPECT_TRUE(limits.Open(Fd(1), Peer("busy", 1), At(absl::Seconds(9'999))).ok());
  // All with one descriptor: each is closed when the next one comes.
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_TRUE(limits.Open(Fd(1), Peer(absl::StrCat("a", i), 1), At(absl::Seconds(i))).ok());
  }
  EXPECT_FALSE(limits.Open(Fd(1), Peer("busy", 1), At(absl::Seconds(9'999))).ok());
  EXPECT_LT(limits.addresses(), 3000);
}

sockaddr_storage Socket(const std::string& host, int port) {
  sockaddr_storage address = {};
  auto* const ipv4 = reinterpret_cast<sockaddr_in*>(&address);
  auto* const ipv6 = reinterpret_cast<sockaddr_in6*>(&address);
  if (inet_pton(AF_INET, host.c_str(), &ipv4->sin_addr) == 1) {
    ipv4->sin_family = AF_INET;
    ipv4->sin_port = htons(port);
  } else {
    EXPECT_EQ(inet_pton(AF_INET6, host.c_str(), &ipv6->sin6_addr), 1) << host;
    ipv6->sin6_family = AF_INET6;
    ipv6->sin6_port = htons(port);
  }
  return address;
}

TEST(PeerAddressTest, SocketAndCall_AreTheSame) {
  EXPECT_EQ(PeerOfSocket(Socket("10.0.0.1", 4711)), Peer("10.0.0.1", 4711));
  EXPECT_EQ(PeerOfCall("ipv4:10.0.0.1:4711"), Peer("10.0.0.1", 4711));
  EXPECT_EQ(PeerOfSocket(Socket("::ffff:10.0.0.1", 4711)), Peer("10.0.0.1", 4711));
  EXPECT_EQ(PeerOfCall("ipv6:%5B::ffff:10.0.0.1%5D:4711"), Peer("10.0.0.1", 4711));
  EXPECT_EQ(PeerOfSocket(Socket("2001:db8::1", 1)), Peer("2001:db8::1", 1));
  EXPECT_EQ(PeerOfCall("ipv6:%5B2001:db8::1%5D:1"), Peer("2001:db8::1", 1));
  EXPECT_EQ(PeerOfSocket(Socket("fe80::1", 2)), Peer("fe80::1", 2));
  EXPECT_EQ(PeerOfCall("ipv6:%5Bfe80::1%252%5D:2"), Peer("fe80::1", 2));
}

// Two processes of a host, also of two users, can share a port to reach different addresses of the host.
TEST(ConnectionLimitsTest, OwnEndsOf_AllConnectionsOfAPort) {
  ConnectionLimits limits{ConnectionLimits::Limits()};
  const PeerAddress peer = Peer("127.0.0.1", 5), one = Peer("127.0.0.1", 1), other = Peer("127.0.0.9", 1);
  const auto open = [&](int fd, const PeerAddress& own) {
    ASSERT_TRUE(limits.Open(Fd(fd), peer, At(absl::ZeroDuration()), own).ok());
  };
  open(1, one);
  open(2, other);
  EXPECT_EQ(limits.LocalEndsOf(peer).size(), 2u);
  EXPECT_TRUE(limits.LocalEndsOf(Peer("127.0.0.1", 6)).empty());
  open(3, one);  // so the connection of 1 is closed
  EXPECT_EQ(limits.LocalEndsOf(peer).size(), 2u);
  EXPECT_EQ(limits.EvictOldest(), Fd(1));
  EXPECT_EQ(limits.LocalEndsOf(peer).size(), 2u);
  EXPECT_EQ(limits.EvictOldest(), Fd(2));
  EXPECT_EQ(limits.LocalEndsOf(peer), std::vector<PeerAddress>{one});
}

TEST(PeerAddressTest, AddressOfPeer_EveryForm) {
  EXPECT_EQ(AddressOfPeer("ipv4:10.0.0.1:4711"), "10.0.0.1");
  EXPECT_EQ(AddressOfPeer("ipv6:[::1]:4711"), "::1");
  EXPECT_EQ(AddressOfPeer("ipv6:%5B::1%5D:4711"), "::1");
  EXPECT_EQ(AddressOfPeer("ipv6:%5B::ffff:10.0.0.1%5D:4711"), "10.0.0.1");
}

SteadyTime At(int seconds) { return SteadyTime::FromStart(absl::Seconds(seconds)); }
StreamLimits::Key Stream(intptr_t i) { return reinterpret_cast<StreamLimits::Key>(i); }

TEST(StreamLimitsTest, NoJoinInTime_IsOverdueOnce) {
  StreamLimits limits({.first_message = absl::Seconds(10)});
  EXPECT_EQ(limits.NextDeadline(), SteadyTime::InfiniteFuture());
  ASSERT_TRUE(limits.Open(Stream(1), "a", At(0)).ok());
  ASSERT_TRUE(limits.Open(Stream(2), "a", At(1)).ok());
  ASSERT_TRUE(limits.Open(Stream(3), "a", At(2)).ok());
  limits.Joined(Stream(2));
  EXPECT_EQ(limits.NextDeadline(), At(10));
  EXPECT_TRUE(limits.TakeOverdue(At(9)).empty());
  EXPECT_EQ(limits.TakeOverdue(At(11)), std::vector<StreamLimits::Key>{Stream(1)});
  EXPECT_TRUE(limits.TakeOverdue(At(11)).empty());
  limits.Closed(Stream(3));
  EXPECT_EQ(limits.NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST(StreamLimitsTest, TooManyWait_TheOldestGoes) {
  StreamLimits limits({.waiting = 2});
  for (int i = 1; i <= 2; ++i) {
    ASSERT_TRUE(limits.Open(Stream(i), "a", At(i)).ok());
    EXPECT_EQ(limits.TakeSurplus(), nullptr);
  }
  ASSERT_TRUE(limits.Open(Stream(3), "b", At(3)).ok());
  EXPECT_EQ(limits.TakeSurplus(), Stream(1));
  EXPECT_EQ(limits.TakeSurplus(), nullptr);
  limits.Joined(Stream(2));
  ASSERT_TRUE(limits.Open(Stream(4), "b", At(4)).ok());
  EXPECT_EQ(limits.TakeSurplus(), nullptr);
}

TEST(StreamLimitsTest, TooManyOfOneAddress_OthersGetIn) {
  StreamLimits limits({.streams_per_address = 2});
  for (int i = 1; i <= 2; ++i) {
    ASSERT_TRUE(limits.Open(Stream(i), "a", At(0)).ok());
    limits.Joined(Stream(i));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(limits.Open(Stream(3), "a", At(0))));
  EXPECT_TRUE(limits.Open(Stream(4), "b", At(0)).ok());
  limits.Closed(Stream(1));
  EXPECT_TRUE(limits.Open(Stream(3), "a", At(0)).ok());
}

TEST(StreamLimitsTest, TooManyInAll) {
  StreamLimits limits({.streams = 2});
  for (int i = 1; i <= 2; ++i) {
    ASSERT_TRUE(limits.Open(Stream(i), absl::StrCat("a", i), At(0)).ok());
    limits.Joined(Stream(i));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(limits.Open(Stream(3), "b", At(0))));
  limits.Closed(Stream(3));  // which was never taken in
  limits.Closed(Stream(2));
  limits.Closed(Stream(2));
  EXPECT_TRUE(limits.Open(Stream(3), "b", At(0)).ok());
}

}  // namespace

}  // namespace ddprun::rendezvous
