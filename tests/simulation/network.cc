#include "tests/simulation/network.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::testing {
namespace {

constexpr absl::Duration kMostDelay = absl::Milliseconds(20);  // delay of a packet, one way
constexpr absl::Duration kMostRetransmit = absl::Milliseconds(1500);

}  // namespace

absl::Duration Network::Delay() { return timeline_->Random(kMostDelay); }

bool Network::IsCut(const Connection& connection, Direction direction) const {
  return direction == kUp ? !Reaches(connection.client_host, connection.server_host)
                          : !Reaches(connection.server_host, connection.client_host);
}

std::shared_ptr<Connection> Network::Open(int client_host, int server_host) {
  auto connection = std::make_shared<Connection>();
  connection->id = ++opened_;
  connection->client_host = client_host;
  connection->server_host = server_host;
  if (connections_.size() >= purge_at_) {
    const auto gone = [](const std::weak_ptr<Connection>& c) { return c.expired(); };
    connections_.erase(std::remove_if(connections_.begin(), connections_.end(), gone), connections_.end());
    purge_at_ = 2 * connections_.size() + 16;
  }
  connections_.push_back(connection);
  return connection;
}

void Network::Put(const std::shared_ptr<Connection>& connection, Direction direction, Packet packet) {
  Connection::Lane& lane = connection->lanes[direction];
  lane.packets.push_back(std::move(packet));
  if (lane.stalled || timeline_->chosen()) return;
  lane.last = std::max(lane.last, timeline_->now() + Delay());
  timeline_->At(lane.last, [=, this] { Arrive(connection, direction); });
}

void Network::LoseSome(const std::shared_ptr<Connection>& connection, Direction direction) {
  std::deque<Packet>& packets = connection->lanes[direction].packets;
  if (timeline_->chosen() || packets.empty() || timeline_->Below(2) == 0) return;
  packets.resize(timeline_->Below(static_cast<int>(packets.size())));
}

void Network::Arrive(const std::shared_ptr<Connection>& connection, Direction direction) {
  Connection::Lane& lane = connection->lanes[direction];
  if (lane.stalled || lane.packets.empty()) return;  // Heal schedules stalled packets again
  if (IsCut(*connection, direction)) {
    lane.stalled = true;
    return;
  }
  Packet packet = std::move(lane.packets.front());
  lane.packets.pop_front();
  connection->receivers[direction](std::move(packet));
}

void Network::Cut(int host, bool out, bool in) {
  timeline_->Note(absl::StrCat("cut host ", host, out ? " out" : "", in ? " in" : ""));
  hosts_[host].out |= out;
  hosts_[host].in |= in;
}

void Network::Wall(int host) {
  Cut(host, true, true);
  hosts_[host].walled = true;
}

void Network::Heal(int host) {
  if (!hosts_[host].out && !hosts_[host].in) return;
  timeline_->Note(absl::StrCat("heal host ", host));
  hosts_[host] = Host();
  for (const auto& weak : connections_) {
    const std::shared_ptr<Connection> connection = weak.lock();
    if (connection == nullptr) continue;
    for (const Direction direction : {kUp, kDown}) {
      Connection::Lane& lane = connection->lanes[direction];
      if (!lane.stalled || IsCut(*connection, direction)) continue;
      lane.stalled = false;
      lane.last = std::max(lane.last, timeline_->now() + timeline_->Random(kMostRetransmit));
      for (size_t i = 0; i < lane.packets.size(); ++i) {
        timeline_->At(lane.last, [this, connection, direction] { Arrive(connection, direction); });
      }
    }
  }
}

}  // namespace ddprun::testing
