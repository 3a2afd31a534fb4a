#include "launcher/store/pending_connections.h"

#include <algorithm>

namespace ddprun::launcher {

bool PendingConnections::Add(ClientId id, absl::string_view stranger, SteadyTime now) {
  if (!stranger.empty()) {
    size_t& count = of_address_[stranger];
    if (count >= limits_.strangers_of_address) return false;
    ++count;
  }
  Line& line = stranger.empty() ? nodes_ : strangers_;
  by_id_[id] = line.insert(line.end(), Pending{id, now + limits_.patience, std::string(stranger)});
  return true;
}

void PendingConnections::Remove(ClientId id) {
  const auto it = by_id_.find(id);
  if (it == by_id_.end()) return;
  const Line::iterator pending = it->second;
  by_id_.erase(it);
  if (pending->stranger.empty()) {
    nodes_.erase(pending);
    return;
  }
  const auto count = of_address_.find(pending->stranger);
  if (--count->second == 0) of_address_.erase(count);
  strangers_.erase(pending);
}

std::optional<ClientId> PendingConnections::Surplus() const {
  if (strangers_.size() <= limits_.strangers) return std::nullopt;
  return strangers_.front().id;
}

std::optional<ClientId> PendingConnections::Expired(SteadyTime now) const {
  for (const Line* line : {&nodes_, &strangers_}) {
    if (!line->empty() && line->front().until <= now) return line->front().id;
  }
  return std::nullopt;
}

SteadyTime PendingConnections::NextDeadline() const {
  SteadyTime next = SteadyTime::InfiniteFuture();
  for (const Line* line : {&nodes_, &strangers_}) {
    if (!line->empty()) next = std::min(next, line->front().until);
  }
  return next;
}

std::vector<ClientId> PendingConnections::Of(absl::string_view address) const {
  std::vector<ClientId> ids;
  if (!of_address_.contains(address)) return ids;
  for (const Pending& pending : strangers_) {
    if (pending.stranger == address) ids.push_back(pending.id);
  }
  return ids;
}

}  // namespace ddprun::launcher
