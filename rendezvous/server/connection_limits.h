#ifndef DDPRUN_RENDEZVOUS_SERVER_CONNECTION_LIMITS_H_
#define DDPRUN_RENDEZVOUS_SERVER_CONNECTION_LIMITS_H_

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "rendezvous/server/peer_address.h"

namespace ddprun::rendezvous {

// PURE: which TCP connections a server holds, so that whoever opens them neither grows it nor keeps launchers out. A
// connection without a session, a launcher's stream that has brought its Join, waits for one: where there is no room
// for another connection, the one that has waited longest has to go. Connections with a session stay.
//
// Nobody says when a connection is closed (gRPC does it), and nobody needs to: the kernel gives out the number of a
// descriptor again only then. Thread-compatible.
class ConnectionLimits {
 public:
  struct Limits {
    size_t connections = 100'000;
    size_t waiting = 16'384;
    size_t per_address = 16'384;  // as for streams (StreamLimits)
    // In the long run an address may open one connection in each interval, at once as many as `burst`: thousands of
    // launchers behind one address may all come back at once. A stream counts until it brings its Join, as it costs
    // more than a connection: what a whole burst costs must not hold up the heartbeats of others.
    absl::Duration interval = absl::Milliseconds(1);
    int burst = 16'384;
    // So many more of an address than have brought a Join are handed to gRPC at once, and one in each interval: gRPC
    // takes in all streams of a connection before one is counted.
    int entries = 32;
    absl::Duration entry_interval = absl::Milliseconds(20);
    int streams = 16;         // that are opened on a connection before one brings its Join; a launcher needs one
    int stream_costs = 4;     // what each of these counts for, in connections
    int surplus_costs = 100;  // what the first above that counts for: gRPC has taken in others by then
    absl::Duration first_bytes = absl::Seconds(5);  // by then a connection must have begun to speak
  };
  // A connection. Descriptors are used again; the kernel's cookie of a socket is not (SO_COOKIE).
  struct Id {
    int fd = -1;
    uint64_t cookie = 0;
    friend bool operator==(const Id&, const Id&) = default;
  };

  enum class Entry { kNow, kLater, kNever };

  explicit ConnectionLimits(const Limits& limits) : limits_(limits) {}

  // A connection came; `own` is this server's end of one from a loopback address, else empty. Returns those that have
  // to be closed to make room for it, which are not held any more.
  // RESOURCE_EXHAUSTED: it has to be closed itself.
  absl::StatusOr<std::vector<Id>> Open(const Id& id, const PeerAddress& peer, SteadyTime now,
                                       const PeerAddress& own = {});

  // The connection that has waited longest, which is not held any more: it has to be closed. nullopt: none waits.
  std::optional<Id> TakeOldest();

  // Whether the connection may be handed to gRPC.
  Entry Enter(const Id& id, SteadyTime now);

  // A stream begins on the connection of this peer. The connection, if that is one too many: it has to be closed.
  std::optional<Id> StreamBegan(const PeerAddress& peer, SteadyTime now);

  // A session on the connection of this peer has joined; one that had has ended. Others are of no concern.
  void SessionBegan(const PeerAddress& peer);
  void SessionEnded(const PeerAddress& peer);

  // This server's ends of the connections from a loopback address and port, perhaps with closed ones. There can be
  // several: processes of this host, also of different users, can share a port to reach different addresses.
  std::vector<PeerAddress> OwnEndsOf(const PeerAddress& peer) const;

  // How many addresses it remembers.
  size_t addresses() const { return addresses_.size(); }

 private:
  struct Connection {
    Id id;
    PeerAddress peer;
    PeerAddress own;
    bool proven = false;  // has brought a Join
    int streams = 0;      // that began since the last Join
    int sessions = 0;
    // Among those that wait, if there are no sessions.
    std::list<int>::iterator place;
    std::list<int>::iterator place_of_address;
  };
  struct Address {
    size_t connections = 0;
    SteadyTime entered = SteadyTime::InfinitePast();  // as `rested`, of those handed to gRPC
    std::list<int> waiting;                           // descriptors, the longest waiting first
    SteadyTime rested = SteadyTime::InfinitePast();   // when nothing counts against it any more
  };

  Connection* Find(const PeerAddress& peer);
  void Wait(Connection* connection);
  Id Remove(int fd);
  void ForgetRested(SteadyTime now);

  const Limits limits_;
  std::unordered_map<int, Connection> connections_;                              // by descriptor
  absl::flat_hash_map<PeerAddress, int> by_peer_;                                // the newest
  std::unordered_multimap<PeerAddress, int, absl::Hash<PeerAddress>> loopback_;  // those with an own end
  std::unordered_map<std::string, Address> addresses_;
  std::list<int> waiting_;  // descriptors, the longest waiting first
  size_t look_again_at_ = 1024;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_CONNECTION_LIMITS_H_
