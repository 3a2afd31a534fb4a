#include "rendezvous/core/membership.h"

#include <algorithm>
#include <utility>

#include "base/secret.h"
#include "rendezvous/core/heartbeats.h"

namespace ddprun::rendezvous {

std::string Membership::SessionOf(const Join& join) { return SecretDigest(join.session_secret()); }

bool Membership::IsOfSession(absl::string_view session, const Join& join) {
  return SecretsEqual(session, SessionOf(join));
}

Node* Membership::Add(const Join& join, SteadyTime now) {
  auto owned = std::make_unique<Node>();
  Node* node = owned.get();
  node->join = join;
  node->join.clear_session_secret();
  node->join.clear_settings();
  node->join.clear_current();
  node->join.clear_survivors();
  node->session = SessionOf(join);
  node->join_order = joins_++;
  node->heartbeat_timeout = heartbeat_timeout_;
  node->last_heard = now;
  Hear(node, now);
  if (join.has_node_rank()) {
    Node*& holder = by_requested_rank_[join.node_rank()];
    if (holder != nullptr) holder->node_rank.reset();
    holder = node;
    node->node_rank = join.node_rank();
  }
  node->self = nodes_.insert(nodes_.end(), std::move(owned));
  by_id_[node->join.node_id()] = node;
  by_host_[node->join.host()].push_back(node);
  PutIn(node);
  Count(*node, +1);
  return node;
}

void Membership::Remove(Node* node) {
  Count(*node, -1);
  TakeOut(node);
  if (node->node_rank) by_requested_rank_.erase(*node->node_rank);
  by_id_.erase(node->join.node_id());
  const auto of_host = by_host_.find(node->join.host());
  std::erase(of_host->second, node);
  if (of_host->second.empty()) by_host_.erase(of_host);
  nodes_.erase(node->self);
}

Node* Membership::Find(absl::string_view node_id) const {
  auto it = by_id_.find(node_id);
  return it == by_id_.end() ? nullptr : it->second;
}

Node* Membership::FindByRequestedRank(int32_t node_rank) const {
  auto it = by_requested_rank_.find(node_rank);
  return it == by_requested_rank_.end() ? nullptr : it->second;
}

void Membership::Heard(Node* node, SteadyTime now) {
  if (!node->connected) return;
  node->last_heard = now;
  Expect(node, now);
}

void Membership::SetHeartbeatTimeout(Node* node, absl::Duration timeout) {
  TakeOut(node);
  node->heartbeat_timeout = timeout;
  PutIn(node);
}

void Membership::Expect(Node* node, SteadyTime now) {
  if (!node->connected) return;
  TakeOut(node);
  Hear(node, now);
  PutIn(node);
}

void Membership::Disconnected(Node* node, SteadyTime now) {
  if (!node->connected) return;
  Count(*node, -1);
  TakeOut(node);
  node->connected = false;
  node->last_heard = now;
  PutIn(node);
  Count(*node, +1);
}

void Membership::Reconnected(Node* node, SteadyTime now) {
  Count(*node, -1);
  TakeOut(node);
  node->connected = true;
  node->last_heard = now;
  Hear(node, now);
  PutIn(node);
  Count(*node, +1);
}

void Membership::SetState(Node* node, NodeState state) {
  Count(*node, -1);
  TakeOut(node);
  node->state = state;
  if (state != NodeState::kIdle) node->survivors.clear();
  PutIn(node);
  Count(*node, +1);
}

void Membership::SetGroupRank(Node* node, int32_t group_rank) {
  Count(*node, -1);
  node->group_rank = group_rank;
  Count(*node, +1);
}

void Membership::SetInTouch(Node* node, bool in_touch) {
  Count(*node, -1);
  node->in_touch = in_touch;
  Count(*node, +1);
}

void Membership::SetSurvivors(Node* node, const google::protobuf::RepeatedPtrField<Survivor>& survivors,
                              bool can_reform) {
  Count(*node, -1);
  node->survivors.assign(survivors.begin(), survivors.end());
  node->plain = node->round > 0 && !can_reform;
  Count(*node, +1);
}

Node* Membership::Expired(SteadyTime now) const {
  if (!broken_.empty() && (*broken_.begin())->expires <= now) return *broken_.begin();
  if (!heard_.empty() && NextExpiry() <= now) return *heard_.begin();
  return nullptr;
}

SteadyTime Membership::NextExpiry() const {
  SteadyTime next = SteadyTime::InfiniteFuture();
  if (!broken_.empty()) next = std::min(next, (*broken_.begin())->expires);
  if (heard_.empty()) return next;
  const SteadyTime silent = (*heard_.begin())->expires;
  return std::min(next, lateness_ == nullptr ? silent : std::max(silent, lateness_->excused_until()));
}

absl::Duration Membership::Patience(const Node& node) const {
  return node.may_have_workers() ? node.heartbeat_timeout : IdleTimeout(node.heartbeat_timeout);
}

bool Membership::IsQuiet(const Node& node, SteadyTime now) const {
  if (node.join.origin().in_process() || MissedAt(node, node.heartbeat_timeout) > now) return false;
  return lateness_ == nullptr || lateness_->excused_until() <= now;
}

std::vector<std::string> Membership::FirstHosts(size_t most) const {
  std::vector<std::string> hosts;
  for (const auto& node : nodes_) {
    if (hosts.size() == most) break;
    hosts.push_back(node->join.host());
  }
  return hosts;
}

std::vector<Node*> Membership::OnHosts(const std::set<std::string>& hosts) const {
  std::vector<Node*> nodes;
  for (const std::string& host : hosts) {
    const auto of_host = by_host_.find(host);
    if (of_host != by_host_.end()) nodes.insert(nodes.end(), of_host->second.begin(), of_host->second.end());
  }
  std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) { return a->join_order < b->join_order; });
  return nodes;
}

std::vector<std::string> Membership::SortedIds() const {
  std::vector<std::string> ids;
  ids.reserve(nodes_.size());
  for (const auto& node : nodes_) ids.push_back(node->join.node_id());
  std::sort(ids.begin(), ids.end());
  return ids;
}

SteadyTime Membership::MissedAt(const Node& node, absl::Duration patience) const {
  return node.quiet_since + patience + node.allowance;
}

void Membership::Hear(Node* node, SteadyTime now) {
  node->quiet_since = now;
  node->allowance = lateness_ == nullptr ? absl::ZeroDuration() : lateness_->Allowance();
}

void Membership::TakeOut(Node* node) {
  if (node->expires != SteadyTime::InfiniteFuture()) OrderOf(*node)->erase(node);
}

void Membership::PutIn(Node* node) {
  if (!node->connected) {
    node->expires = node->last_heard + reconnect_grace_;
  } else {
    node->expires = node->join.origin().in_process() ? SteadyTime::InfiniteFuture() : MissedAt(*node, Patience(*node));
  }
  node->turn = ++turns_;
  if (node->expires != SteadyTime::InfiniteFuture()) OrderOf(*node)->insert(node);
}

void Membership::Count(const Node& node, int by) {
  if (node.ready()) ready_ += by;
  if (node.in_round() && !node.ready()) unready_in_round_ += by;
  if (node.may_have_workers()) with_workers_ += by;
  if (node.in_touch) in_touch_ += by;
  if (node.in_touch && !node.in_round()) untold_ += by;
  if (!node.survivors.empty()) with_survivors_ += by;
  if (node.plain && node.in_round()) plain_in_round_ += by;
}

}  // namespace ddprun::rendezvous
