#include "rendezvous/core/fence.h"

#include <utility>

#include "rendezvous/core/beat_plan.h"

namespace ddprun::rendezvous {

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
