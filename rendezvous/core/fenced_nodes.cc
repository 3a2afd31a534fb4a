#include "rendezvous/core/fenced_nodes.h"

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

}  // namespace ddprun::rendezvous
