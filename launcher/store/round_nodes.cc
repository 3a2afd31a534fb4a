#include "launcher/store/round_nodes.h"

namespace ddprun::launcher {

void RoundNodes::Add(absl::string_view address, const std::vector<std::string>& others, int workers) {
  Node& node = nodes_[address];
  node.workers += workers;
  ++node.launchers;
  addresses_[address] = std::string(address);
  for (const std::string& other : others) addresses_.try_emplace(other, address);
}

absl::string_view RoundNodes::NodeAt(absl::string_view address) const {
  const auto it = addresses_.find(address);
  return it == addresses_.end() ? absl::string_view() : it->second;
}

bool RoundNodes::Connect(absl::string_view node) {
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return false;
  Node& of = it->second;
  if (of.connections >= of.launchers * kConnectionsOfNode + of.workers * kConnectionsOfWorker) return false;
  ++of.connections;
  return true;
}

void RoundNodes::Disconnect(absl::string_view node) {
  const auto it = nodes_.find(node);
  if (it != nodes_.end() && it->second.connections > 0) --it->second.connections;
}

}  // namespace ddprun::launcher
