#include "rendezvous/server/peer_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "rendezvous/server/call_guard.h"

namespace ddprun::rendezvous {

PeerAddress PeerOfSocket(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &ipv4.sin_addr, text, sizeof text);
    return PeerAddress{text, ntohs(ipv4.sin_port)};
  }
  const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(address);
  inet_ntop(AF_INET6, &ipv6.sin6_addr, text, sizeof text);
  absl::string_view host = text;
  absl::ConsumePrefix(&host, "::ffff:");
  return PeerAddress{std::string(host), ntohs(ipv6.sin6_port)};
}

PeerAddress PeerOfCall(const std::string& peer) {
  PeerAddress address;
  address.host = AddressOfPeer(peer);
  address.host.resize(address.host.find('%') == std::string::npos ? address.host.size() : address.host.find('%'));
  (void)absl::SimpleAtoi(absl::string_view(peer).substr(peer.rfind(':') + 1), &address.port);
  return address;
}

}  // namespace ddprun::rendezvous
