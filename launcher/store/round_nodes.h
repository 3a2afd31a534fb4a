#ifndef DDPRUN_LAUNCHER_STORE_ROUND_NODES_H_
#define DDPRUN_LAUNCHER_STORE_ROUND_NODES_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Addresses of the nodes in a store's round, as registered by their launchers, and the number of connections of each
// node. Pure; not thread-safe.
class RoundNodes {
 public:
  // Maximum number of simultaneous connections per launcher and per worker of a node: far more than torch opens (one
  // per worker, plus one per clone of a store or split-off NCCL communicator).
  static constexpr int kConnectionsOfNode = 64;
  static constexpr int kConnectionsOfWorker = 256;

  // Adds a node with `workers` that registered from `address`. Its workers may also connect from one of `others`,
  // unless that is the address of an earlier node. Several nodes may share one address (launchers on one host, NAT).
  void Add(absl::string_view address, const std::vector<std::string>& others, int workers);

  // Registration address of the node that has `address`; empty if there is none.
  absl::string_view NodeAt(absl::string_view address) const;

  // Counts a new connection of the node that registered from `node`; false if it has too many. Disconnect removes one.
  bool Connect(absl::string_view node);
  void Disconnect(absl::string_view node);

 private:
  struct Node {
    int workers = 0;
    int launchers = 0;
    int connections = 0;
  };
  absl::flat_hash_map<std::string, Node> nodes_;             // by registration address
  absl::flat_hash_map<std::string, std::string> addresses_;  // to keys of nodes_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_ROUND_NODES_H_
