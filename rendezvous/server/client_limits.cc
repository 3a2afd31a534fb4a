#include "rendezvous/server/client_limits.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/text.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kMaxAddressBytes = 256;

}  // namespace

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

std::string AddressOfPeer(const std::string& peer) {
  std::string text = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
  absl::string_view address = text;
  if (!absl::ConsumePrefix(&address, "ipv4:")) absl::ConsumePrefix(&address, "ipv6:");
  address = address.substr(0, address.rfind(':'));
  if (absl::ConsumePrefix(&address, "[")) absl::ConsumeSuffix(&address, "]");
  absl::ConsumePrefix(&address, "::ffff:");
  return OneLine(address, kMaxAddressBytes);
}

absl::StatusOr<std::vector<ConnectionLimits::Id>> ConnectionLimits::Open(const Id& id, const PeerAddress& peer,
                                                                         SteadyTime now, const PeerAddress& own) {
  if (connections_.contains(id.fd)) Remove(id.fd);  // closed in the meantime
  ForgetIdleAddresses(now);
  Address& address = addresses_[peer.host];
  const SteadyTime rested = std::max(address.rested, now) + limits_.interval;
  if (rested - now > limits_.burst * limits_.interval) {
    return absl::ResourceExhaustedError(absl::StrCat(peer.host, " opens connections too fast"));
  }
  address.rested = rested;
  std::vector<Id> surplus;
  if (address.connections >= limits_.per_address) {
    if (address.waiting.empty()) {
      return absl::ResourceExhaustedError(absl::StrCat(peer.host, " has ", address.connections, " connections"));
    }
    surplus.push_back(Remove(address.waiting.front()));
  }
  if (connections_.size() >= limits_.connections && waiting_.empty()) {
    return absl::ResourceExhaustedError(absl::StrCat("there are ", connections_.size(), " connections"));
  }
  if (connections_.size() >= limits_.connections || waiting_.size() >= limits_.waiting) {
    surplus.push_back(Remove(waiting_.front()));
  }
  Connection& connection = connections_[id.fd];
  connection.id = id;
  connection.peer = peer;
  connection.own = own;
  by_peer_[peer] = id.fd;
  if (!own.host.empty()) {
    const auto [begin, end] = loopback_.equal_range(peer);
    // Two connections cannot have the same ends, so the older one is closed.
    const auto older = std::find_if(begin, end, [&](const auto& e) { return connections_.at(e.second).own == own; });
    if (older != end) loopback_.erase(older);
    loopback_.emplace(peer, id.fd);
  }
  ++address.connections;
  Wait(&connection);
  return surplus;
}

std::optional<ConnectionLimits::Id> ConnectionLimits::EvictOldest() {
  if (waiting_.empty()) return std::nullopt;
  return Remove(waiting_.front());
}

ConnectionLimits::Entry ConnectionLimits::Enter(const Id& id, SteadyTime now) {
  const auto it = connections_.find(id.fd);
  if (it == connections_.end() || it->second.id != id) return Entry::kNever;
  Address& address = addresses_[it->second.peer.host];
  if (address.rested - now > limits_.burst * limits_.interval) return Entry::kNever;
  const SteadyTime entered = std::max(address.entered, now) + limits_.entry_interval;
  if (entered - now > limits_.entries * limits_.entry_interval) return Entry::kLater;
  address.entered = entered;
  return Entry::kNow;
}

std::optional<ConnectionLimits::Id> ConnectionLimits::OnStreamStarted(const PeerAddress& peer, SteadyTime now) {
  Connection* const connection = Find(peer);
  if (connection == nullptr) return std::nullopt;
  const int surplus = ++connection->streams - limits_.streams;
  Address& address = addresses_[peer.host];
  address.rested = std::max(address.rested, now) +
                   (surplus == 1 ? limits_.excess_stream_cost : limits_.stream_cost) * limits_.interval;
  if (surplus <= 0) return std::nullopt;
  return connection->id;
}

void ConnectionLimits::OnSessionStarted(const PeerAddress& peer) {
  Connection* const connection = Find(peer);
  if (connection == nullptr) return;
  Address& address = addresses_[peer.host];
  address.rested = address.rested - std::exchange(connection->streams, 0) * limits_.stream_cost * limits_.interval;
  if (!std::exchange(connection->proven, true)) address.entered = address.entered - limits_.entry_interval;
  if (++connection->sessions > 1) return;
  waiting_.erase(connection->place);
  address.waiting.erase(connection->place_of_address);
}

void ConnectionLimits::OnSessionClosed(const PeerAddress& peer) {
  Connection* const connection = Find(peer);
  // The session may have been counted on another connection of this peer, which is closed by now.
  if (connection == nullptr || connection->sessions == 0) return;
  if (--connection->sessions == 0) Wait(connection);
}

std::vector<PeerAddress> ConnectionLimits::LocalEndsOf(const PeerAddress& peer) const {
  std::vector<PeerAddress> ends;
  const auto [begin, end] = loopback_.equal_range(peer);
  for (auto it = begin; it != end; ++it) ends.push_back(connections_.at(it->second).own);
  return ends;
}

ConnectionLimits::Connection* ConnectionLimits::Find(const PeerAddress& peer) {
  const auto it = by_peer_.find(peer);
  return it == by_peer_.end() ? nullptr : &connections_.at(it->second);
}

void ConnectionLimits::Wait(Connection* connection) {
  std::list<int>& of_address = addresses_[connection->peer.host].waiting;
  connection->place = waiting_.insert(waiting_.end(), connection->id.fd);
  connection->place_of_address = of_address.insert(of_address.end(), connection->id.fd);
}

ConnectionLimits::Id ConnectionLimits::Remove(int fd) {
  const auto it = connections_.find(fd);
  const Connection& connection = it->second;
  const Id id = connection.id;
  Address& address = addresses_[connection.peer.host];
  if (connection.sessions == 0) {
    waiting_.erase(connection.place);
    address.waiting.erase(connection.place_of_address);
  }
  --address.connections;
  const auto by_peer = by_peer_.find(connection.peer);
  if (by_peer != by_peer_.end() && by_peer->second == fd) by_peer_.erase(by_peer);
  const auto [begin, end] = loopback_.equal_range(connection.peer);
  const auto loopback = std::find_if(begin, end, [fd](const auto& entry) { return entry.second == fd; });
  if (loopback != end) loopback_.erase(loopback);
  connections_.erase(it);
  return id;
}

// Amortized: a full scan only when the number of addresses has doubled.
void ConnectionLimits::ForgetIdleAddresses(SteadyTime now) {
  if (addresses_.size() < next_scan_size_) return;
  std::erase_if(addresses_,
                [&](const auto& entry) { return entry.second.connections == 0 && entry.second.rested <= now; });
  next_scan_size_ = std::max<size_t>(1024, 2 * addresses_.size());
}

absl::Status StreamLimits::Open(Key stream, const std::string& address, SteadyTime now) {
  const bool surplus = waiting_.size() >= limits_.waiting;  // one waiting stream will be ended
  if (streams_.size() >= limits_.streams + (surplus ? 1 : 0)) {
    return absl::ResourceExhaustedError(absl::StrCat("too many streams (", streams_.size(), "); try again later"));
  }
  size_t& of_address = of_address_[address];
  if (of_address >= limits_.streams_per_address + (surplus ? 1 : 0)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("too many streams from ", address, " (", of_address, "); try again later"));
  }
  ++of_address;
  waiting_.push_back(Waiting{stream, now + limits_.first_message});
  streams_[stream] = Stream{address, std::prev(waiting_.end())};
  return absl::OkStatus();
}

void StreamLimits::Joined(Key stream) {
  const auto it = streams_.find(stream);
  if (it == streams_.end() || it->second.place == waiting_.end()) return;
  waiting_.erase(it->second.place);
  it->second.place = waiting_.end();
}

void StreamLimits::Closed(Key stream) {
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return;
  Joined(stream);
  const auto of_address = of_address_.find(it->second.address);
  if (--of_address->second == 0) of_address_.erase(of_address);
  streams_.erase(it);
}

StreamLimits::Key StreamLimits::TakeSurplus() {
  if (waiting_.size() <= limits_.waiting) return nullptr;
  Key stream = waiting_.front().stream;
  Joined(stream);
  return stream;
}

std::vector<StreamLimits::Key> StreamLimits::TakeOverdue(SteadyTime now) {
  std::vector<Key> overdue;
  while (!waiting_.empty() && waiting_.front().until <= now) {
    overdue.push_back(waiting_.front().stream);
    Joined(overdue.back());
  }
  return overdue;
}

SteadyTime StreamLimits::NextDeadline() const {
  return waiting_.empty() ? SteadyTime::InfiniteFuture() : waiting_.front().until;
}

}  // namespace ddprun::rendezvous
