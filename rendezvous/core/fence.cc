#include "rendezvous/core/fence.h"

#include <algorithm>
#include <utility>

namespace ddprun::rendezvous {

void FencedNodes::Add(const std::string& node_id, uint64_t incarnation, SteadyTime gone, std::string session) {
  CameBack(node_id);
  nodes_[node_id] = Entry{incarnation, gone, std::move(session)};
  by_time_.emplace(gone.since_start(), node_id);
}

bool FencedNodes::StillThere(const std::string& node_id, uint64_t incarnation, SteadyTime gone) {
  const auto it = nodes_.find(node_id);
  if (it == nodes_.end() || incarnation != it->second.incarnation) return false;
  Add(node_id, incarnation, std::max(gone, it->second.gone), std::string(it->second.session));
  return true;
}

const std::string* FencedNodes::FindSession(absl::string_view node_id) const {
  const auto it = nodes_.find(node_id);
  return it == nodes_.end() ? nullptr : &it->second.session;
}

bool FencedNodes::StreamClosed(absl::string_view node_id, uint64_t incarnation) {
  const auto it = nodes_.find(node_id);
  if (it == nodes_.end() || incarnation < it->second.incarnation) return false;
  CameBack(node_id);
  return true;
}

bool FencedNodes::IsOvertaken(absl::string_view node_id, uint64_t incarnation) const {
  const auto it = nodes_.find(node_id);
  return it != nodes_.end() && incarnation <= it->second.incarnation;
}

void FencedNodes::CameBack(absl::string_view node_id) {
  const auto it = nodes_.find(node_id);
  if (it == nodes_.end()) return;
  by_time_.erase({it->second.gone.since_start(), it->first});
  nodes_.erase(it);
}

std::vector<FencedNodeRecord> FencedNodes::Record(SteadyTime now) const {
  std::vector<FencedNodeRecord> records;
  for (const auto& [node_id, entry] : nodes_) {
    if (entry.gone <= now) continue;
    FencedNodeRecord& record = records.emplace_back();
    record.set_node_id(node_id);
    record.set_incarnation(entry.incarnation);
    record.set_session(entry.session);
  }
  std::sort(records.begin(), records.end(),
            [](const FencedNodeRecord& a, const FencedNodeRecord& b) { return a.node_id() < b.node_id(); });
  return records;
}

SteadyTime FencedNodes::AllGone() const {
  if (by_time_.empty()) return unknown_gone_;
  return std::max(unknown_gone_, SteadyTime::FromStart(by_time_.rbegin()->first));
}

Fence::Fence(const JobSettings& settings, SteadyTime server_began, FencedNodes inherited, bool all)
    : longest_timeout_(LongestTimeout(settings)),
      reconnect_grace_(ToDuration(settings.reconnect_grace())),
      unknown_gone_(UnknownGone(settings, server_began)),
      gone_(std::move(inherited)) {
  if (all) {
    gone_.DropUnknown();
  } else {
    gone_.AddUnknown(unknown_gone_);
  }
}

void Fence::OnJoin(const Join& join) {
  gone_.CameBack(join.node_id());
  if (join.incarnation() > 1 || join.has_current()) has_veterans_ = true;
}

void Fence::Complete() {
  // All nodes join for the first time, so no earlier server had this job.
  if (!has_veterans_) gone_.DropUnknown();
}

SteadyTime Fence::WorkersGone(const Node& node, SteadyTime heard) const {
  // A launcher in this process sends no heartbeats: its workers are gone when its stream ends.
  return node.join.origin().in_process() ? SteadyTime::InfiniteFuture() : heard + FenceTime(node.heartbeat_timeout);
}

void Fence::OnLeft(const Node& node, SteadyTime now) {
  gone_.Add(node.join.node_id(), node.join.incarnation(), WorkersGone(node, now), node.session);
}

void Fence::OnSilent(const Node& node) {
  gone_.Add(node.join.node_id(), node.join.incarnation(), WorkersGone(node, node.quiet_since), node.session);
}

void Fence::OnJobEnd(const Node& node, SteadyTime now) {
  gone_.Add(node.join.node_id(), node.join.incarnation(),
            node.connected ? WorkersGone(node, now) : node.last_heard + reconnect_grace_, node.session);
}

void Fence::AddTold(const Join& join, absl::Duration longest_timeout, SteadyTime now, FencedNodes* nodes) {
  if (join.phase() != Join::PHASE_RUNNING && join.phase() != Join::PHASE_STOPPING)
    return nodes->CameBack(join.node_id());
  // A launcher in this process sends no heartbeats: its workers are gone when its stream ends.
  const SteadyTime gone = join.origin().in_process() ? SteadyTime::InfiniteFuture() : now + FenceTime(longest_timeout);
  nodes->Add(join.node_id(), join.incarnation(), gone, Membership::SessionOf(join));
}

bool Fence::OnHeartbeat(const std::string& node_id, uint64_t incarnation, SteadyTime now) {
  return gone_.StillThere(node_id, incarnation, now + FenceTime(longest_timeout_));
}

}  // namespace ddprun::rendezvous
