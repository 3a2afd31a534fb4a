#include "rendezvous/core/membership.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/secret.h"

namespace ddprun::rendezvous {
namespace {

std::string SessionOf(const Join& join) { return join.session_secret.empty() ? "" : SecretDigest(join.session_secret); }

}  // namespace

bool Membership::IsSameLauncher(const Node& node, const Join& join) {
  return SecretsEqual(node.session, SessionOf(join));
}

Node* Membership::Add(const Join& join, SteadyTime now) {
  auto owned = std::make_unique<Node>();
  Node* node = owned.get();
  node->node_id = join.node_id;
  node->host = join.host;
  node->address = join.address;
  node->role = join.role;
  node->topology = join.topology;
  node->incarnation = join.incarnation;
  node->store_port = join.store_port;
  node->store_secret = join.store_secret;
  node->slots = join.slots;
  node->in_process = join.in_process;
  node->session = SessionOf(join);
  node->join_order = joins_++;
  node->last_heard = now;
  if (join.node_rank) {
    Node*& holder = by_requested_rank_[*join.node_rank];
    if (holder != nullptr) holder->node_rank.reset();
    holder = node;
    node->node_rank = join.node_rank;
  }
  node->self = nodes_.insert(nodes_.end(), std::move(owned));
  by_id_[node->node_id] = node;
  std::list<Node*>* line = LineOf(*node);
  node->place = line->insert(line->end(), node);
  Count(*node, +1);
  return node;
}

void Membership::Remove(Node* node) {
  Count(*node, -1);
  LineOf(*node)->erase(node->place);
  if (node->node_rank) by_requested_rank_.erase(*node->node_rank);
  by_id_.erase(node->node_id);
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
  std::list<Node*>* line = LineOf(*node);
  line->splice(line->end(), *line, node->place);
}

void Membership::Disconnected(Node* node, SteadyTime now) {
  if (!node->connected) return;
  Count(*node, -1);
  std::list<Node*>* from = LineOf(*node);
  node->connected = false;
  node->last_heard = now;
  std::list<Node*>* to = LineOf(*node);
  to->splice(to->end(), *from, node->place);
  Count(*node, +1);
}

void Membership::Reconnected(Node* node, SteadyTime now) {
  Count(*node, -1);
  std::list<Node*>* from = LineOf(*node);
  node->connected = true;
  node->last_heard = now;
  std::list<Node*>* to = LineOf(*node);
  to->splice(to->end(), *from, node->place);
  Count(*node, +1);
}

void Membership::SetState(Node* node, NodeState state) {
  Count(*node, -1);
  node->state = state;
  Count(*node, +1);
}

void Membership::SetGroupRank(Node* node, int32_t group_rank) {
  Count(*node, -1);
  node->group_rank = group_rank;
  Count(*node, +1);
}

Node* Membership::Expired(SteadyTime now) const {
  if (!broken_.empty() && broken_.front()->last_heard + reconnect_grace_ <= now) return broken_.front();
  if (!heard_.empty() && heard_.front()->last_heard + heartbeat_timeout_ <= now) return heard_.front();
  return nullptr;
}

SteadyTime Membership::NextExpiry() const {
  SteadyTime next = SteadyTime::InfiniteFuture();
  if (!broken_.empty()) next = std::min(next, broken_.front()->last_heard + reconnect_grace_);
  if (!heard_.empty()) next = std::min(next, heard_.front()->last_heard + heartbeat_timeout_);
  return next;
}

std::vector<std::string> Membership::FirstHosts(size_t most) const {
  std::vector<std::string> hosts;
  for (const auto& node : nodes_) {
    if (hosts.size() == most) break;
    hosts.push_back(node->host);
  }
  return hosts;
}

std::vector<std::string> Membership::SortedIds() const {
  std::vector<std::string> ids;
  ids.reserve(nodes_.size());
  for (const auto& node : nodes_) ids.push_back(node->node_id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::list<Node*>* Membership::LineOf(const Node& node) {
  if (!node.connected) return &broken_;
  return node.in_process ? &in_process_ : &heard_;
}

void Membership::Count(const Node& node, int by) {
  if (node.ready()) ready_ += by;
  if (node.in_round() && !node.ready()) unready_in_round_ += by;
  if (node.may_have_workers()) with_workers_ += by;
}

}  // namespace ddprun::rendezvous
