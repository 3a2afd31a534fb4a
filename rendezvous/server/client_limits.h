#ifndef DDPRUN_RENDEZVOUS_SERVER_CLIENT_LIMITS_H_
#define DDPRUN_RENDEZVOUS_SERVER_CLIENT_LIMITS_H_

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/steady_time.h"

// PURE: limits on clients, so that no client can exhaust a server or keep launchers out: ConnectionLimits on TCP
// connections, which an Acceptor applies, and StreamLimits on gRPC calls of Rendezvous.Session, which LauncherStreams
// applies. PeerAddress says which client a connection or call belongs to.
struct sockaddr_storage;

namespace ddprun::rendezvous {

// One end of a TCP connection. A remote end usually identifies one connection, but a process of this host can have
// several from the same port to different addresses of this host.
struct PeerAddress {
  std::string host;  // numeric, without a zone; IPv4 even if the socket is IPv6
  int port = 0;
  friend bool operator==(const PeerAddress&, const PeerAddress&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const PeerAddress& peer) {
    return H::combine(std::move(h), peer.host, peer.port);
  }
};

// Converts the address of a socket. REQUIRES: an IPv4 or IPv6 address.
PeerAddress PeerOfSocket(const sockaddr_storage& address);

// Converts gRPC's name of the peer of a call, such as "ipv4:10.0.0.1:4711" or "ipv6:%5Bfe80::1%252%5D:4711".
PeerAddress PeerOfCall(const std::string& peer);

// Returns the host of gRPC's name of a peer, with its zone: "10.0.0.1" for "ipv4:10.0.0.1:4711" and for
// "ipv6:%5B::ffff:10.0.0.1%5D:4711".
std::string AddressOfPeer(const std::string& peer);

// Decides which TCP connections a server holds. A connection without a session (a launcher's stream that has brought
// its Join) is waiting: where there is no room for another connection, the one that has waited longest is evicted.
// Connections with a session stay.
//
// Closed connections are not reported (gRPC closes them) and need not be: the kernel reuses a descriptor's number only
// after that. Thread-compatible.
class ConnectionLimits {
 public:
  struct Limits {
    size_t connections = 100'000;
    size_t waiting = 16'384;
    size_t per_address = 16'384;  // equal to that of streams (StreamLimits)
    // Rate limit: an address may open one connection per interval, in bursts of up to `burst`, because thousands of
    // launchers behind one address may reconnect at once. A stream also counts until it brings its Join, as it costs
    // more than a connection: a whole burst must not delay the heartbeats of others.
    absl::Duration interval = absl::Milliseconds(1);
    int burst = 16'384;
    // Rate limit on handing connections of one address to gRPC; those that bring a Join do not count. gRPC accepts all
    // streams of a connection before the first one is counted here.
    int entries = 32;
    absl::Duration entry_interval = absl::Milliseconds(20);
    int streams = 16;              // streams opened on a connection before one brings its Join; a launcher needs one
    int stream_cost = 4;           // cost of each such stream, in connections
    int excess_stream_cost = 100;  // cost of the first stream over the limit; gRPC has accepted others by then
    absl::Duration first_bytes = absl::Seconds(5);  // deadline for a connection to send its first bytes
  };
  // Identifies a connection. Descriptors are reused; the kernel's cookie of a socket (SO_COOKIE) is not.
  struct Id {
    int fd = -1;
    uint64_t cookie = 0;
    friend bool operator==(const Id&, const Id&) = default;
  };

  enum class Entry { kNow, kLater, kNever };

  explicit ConnectionLimits(const Limits& limits) : limits_(limits) {}

  // Adds a connection; `own` is this server's end if the peer has a loopback address, else empty. Returns the evicted
  // connections, which are no longer held and have to be closed. RESOURCE_EXHAUSTED: the new connection itself has to
  // be closed.
  absl::StatusOr<std::vector<Id>> Open(const Id& id, const PeerAddress& peer, SteadyTime now,
                                       const PeerAddress& own = {});

  // Evicts the connection that has waited longest, which then has to be closed. nullopt if none waits.
  std::optional<Id> EvictOldest();

  // Decides if and when the connection may be handed to gRPC.
  Entry Enter(const Id& id, SteadyTime now);

  // A stream begins on this peer's connection. Returns the connection if it has to be closed for too many streams.
  std::optional<Id> OnStreamStarted(const PeerAddress& peer, SteadyTime now);

  // A session on this peer's connection has joined, or one that had joined has ended. Unknown peers are ignored.
  void OnSessionStarted(const PeerAddress& peer);
  void OnSessionClosed(const PeerAddress& peer);

  // This server's ends of the connections from a loopback address and port, possibly including closed ones. There can
  // be several: processes of this host, also of different users, can share a port to reach different addresses.
  std::vector<PeerAddress> LocalEndsOf(const PeerAddress& peer) const;

  // Number of addresses remembered.
  size_t addresses() const { return addresses_.size(); }

 private:
  struct Connection {
    Id id;
    PeerAddress peer;
    PeerAddress own;
    bool proven = false;  // a stream has brought a Join
    int streams = 0;      // streams begun since the last Join
    int sessions = 0;
    // Position among the waiting connections; valid if there are no sessions.
    std::list<int>::iterator place;
    std::list<int>::iterator place_of_address;
  };
  struct Address {
    size_t connections = 0;
    SteadyTime entered = SteadyTime::InfinitePast();  // like `rested`, for connections handed to gRPC
    std::list<int> waiting;                           // descriptors, longest waiting first
    SteadyTime rested = SteadyTime::InfinitePast();   // when the rate limit is fully replenished
  };

  Connection* Find(const PeerAddress& peer);
  void Wait(Connection* connection);
  Id Remove(int fd);
  void ForgetIdleAddresses(SteadyTime now);

  const Limits limits_;
  std::unordered_map<int, Connection> connections_;                              // keys: descriptors
  absl::flat_hash_map<PeerAddress, int> by_peer_;                                // the newest connection of each peer
  std::unordered_multimap<PeerAddress, int, absl::Hash<PeerAddress>> loopback_;  // connections with an own end
  std::unordered_map<std::string, Address> addresses_;
  std::list<int> waiting_;  // descriptors, longest waiting first
  size_t next_scan_size_ = 1024;
};

// Decides which streams a server holds: how many, from which addresses, and how long without a Join. Thread-compatible.
class StreamLimits {
 public:
  struct Limits {
    size_t streams = 100'000;
    size_t streams_per_address = 16'384;               // a host may have a thousand launchers, in tests ten thousand
    size_t waiting = 4096;                             // streams without a Join; a launcher is one for one round trip
    absl::Duration first_message = absl::Seconds(10);  // deadline for the Join
  };
  using Key = const void*;

  explicit StreamLimits(const Limits& limits) : limits_(limits) {}

  // Adds a stream. RESOURCE_EXHAUSTED: there is no room for it; nothing has changed.
  absl::Status Open(Key stream, const std::string& address, SteadyTime now);
  // The stream's first message arrived.
  void Joined(Key stream);
  void Closed(Key stream);

  // Returns the stream that has waited longest if too many wait; it has to be ended. nullptr if none.
  Key TakeSurplus();
  // Returns streams that have exceeded the deadline for their Join; they have to be ended.
  std::vector<Key> TakeOverdue(SteadyTime now);
  // When TakeOverdue will next return a stream.
  SteadyTime NextDeadline() const;

 private:
  struct Waiting {
    Key stream;
    SteadyTime until;
  };
  struct Stream {
    std::string address;
    std::list<Waiting>::iterator place;  // waiting_.end() if it is not waiting
  };

  const Limits limits_;
  absl::flat_hash_map<Key, Stream> streams_;
  absl::flat_hash_map<std::string, size_t> of_address_;
  std::list<Waiting> waiting_;  // longest waiting first
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_CLIENT_LIMITS_H_
