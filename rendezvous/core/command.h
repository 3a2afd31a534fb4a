#ifndef DDPRUN_RENDEZVOUS_CORE_COMMAND_H_
#define DDPRUN_RENDEZVOUS_CORE_COMMAND_H_

#include <cstdint>
#include <string>
#include <variant>

#include "worker_contract/exit_codes.h"

// Commands of operators on jobs, nodes and hosts (docs/rendezvousd.md).
namespace ddprun::rendezvous {

// The job ends like a failed one, with this exit code at every launcher.
struct StopJob {
  std::string job_id;
};
using worker_contract::kExitStopped;

// The job gets new bounds on its number of nodes. Launchers still have to join with the same --nnodes as before.
struct ResizeJob {
  std::string job_id;
  int32_t min_nodes = 0;
  int32_t max_nodes = 0;
};

// The node leaves the job; its launcher ends with kExitStopped.
struct KickNode {
  std::string job_id;
  std::string node;  // its host, or the id with which it is shown (ShownId)
};

// Nodes of this host are replaced where their jobs can form without them, and get no ranks in others.
struct DrainHost {
  std::string host;
};

struct UndrainHost {
  std::string host;
};

using Command = std::variant<StopJob, ResizeJob, KickNode, DrainHost, UndrainHost>;

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_COMMAND_H_
