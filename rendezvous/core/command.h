#ifndef DDPRUN_RENDEZVOUS_CORE_COMMAND_H_
#define DDPRUN_RENDEZVOUS_CORE_COMMAND_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "worker_contract/exit_codes.h"

// Commands of operators on jobs, nodes and hosts (protocol 3.10, docs/rendezvousd.md). Registry::OnCommand executes
// them.
namespace ddprun::rendezvous {

// Ends the job as failed; every launcher exits with kExitStopped.
struct StopJob {
  std::string job_id;
};
using worker_contract::kExitStopped;

// Changes the job's minimum and maximum number of nodes. Launchers still have to join with the job's original --nnodes.
struct ResizeJob {
  std::string job_id;
  int32_t min_nodes = 0;
  int32_t max_nodes = 0;
};

// Removes a node from its job for good; its launcher exits with kExitStopped.
struct KickNode {
  std::string job_id;
  std::string node;  // host name, or displayed id (ShownId)
};

// Takes a host out of use: nodes of the host leave their rounds as long as their jobs keep min nodes, and new nodes of
// the host get no ranks.
struct DrainHost {
  std::string host;
};

struct UndrainHost {
  std::string host;
};

using Command = std::variant<StopJob, ResizeJob, KickNode, DrainHost, UndrainHost>;

// Nodes that an Inspect concerns (protocol 6.3).
struct InspectedNodes {
  struct Node {
    std::string node_id;
    uint64_t incarnation = 0;
    std::string host;
    bool asked = false;          // false: the node is not connected
    std::vector<int32_t> ranks;  // asked ranks of this node, ascending
  };
  uint64_t round = 0;
  std::vector<Node> nodes;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_COMMAND_H_
