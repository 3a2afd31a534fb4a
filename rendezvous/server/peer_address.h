#ifndef DDPRUN_RENDEZVOUS_SERVER_PEER_ADDRESS_H_
#define DDPRUN_RENDEZVOUS_SERVER_PEER_ADDRESS_H_

#include <sys/socket.h>

#include <string>
#include <utility>

// Thread-safe.
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

// REQUIRES: an IPv4 or IPv6 address.
PeerAddress PeerOfSocket(const sockaddr_storage& address);

// From gRPC's name of the connection's peer: "ipv4:10.0.0.1:4711", "ipv6:%5Bfe80::1%252%5D:4711".
PeerAddress PeerOfCall(const std::string& peer);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_PEER_ADDRESS_H_
