#ifndef DDPRUN_LAUNCHER_STORE_ROUND_NODES_H_
#define DDPRUN_LAUNCHER_STORE_ROUND_NODES_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// The addresses of the nodes of a store's round, as their launchers have registered them, and how many connections
// each node has. Pure; not thread-safe.
class RoundNodes {
 public:
  // Connections that a node may have at a time: far more than torch opens (one for each worker, and one more for each
  // clone of a store or NCCL communicator that is split off).
  static constexpr int kConnectionsOfNode = 64;
  static constexpr int kConnectionsOfWorker = 256;

  // A node with `workers` that registered from `address`. Its workers may come from one of `others`, too, unless that
  // is the address of an earlier node. Several nodes may have one address (launchers on one host, NAT).
  void Add(absl::string_view address, const std::vector<std::string>& others, int workers);

  // The address from which the node registered that has `address`; empty if no node has it.
  absl::string_view NodeAt(absl::string_view address) const;

  // One more connection of the node that registered from `node`; false if it has too many. One fewer.
  bool Connect(absl::string_view node);
  void Disconnect(absl::string_view node);

 private:
  struct Node {
    int workers = 0;
    int launchers = 0;
    int connections = 0;
  };
  absl::flat_hash_map<std::string, Node> nodes_;             // by the address that they registered from
  absl::flat_hash_map<std::string, std::string> addresses_;  // to keys of nodes_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_ROUND_NODES_H_
