#ifndef DDPRUN_WORKER_RUNTIME_ENV_WORKER_ENV_H_
#define DDPRUN_WORKER_RUNTIME_ENV_WORKER_ENV_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace ddprun {

// Ranks and settings of this worker, from the environment variables that the launcher (ddprun or torchrun) sets;
// worker_contract/environment.h lists them. A plain value; thread-compatible.
struct WorkerEnv {
  int rank = 0;              // 0 to world_size - 1
  int world_size = 1;        // workers on all nodes
  int local_rank = 0;        // 0 to local_world_size - 1: index on its node, and of its GPU
  int local_world_size = 1;  // workers on its node
  int group_rank = 0;        // index of its node
  int group_world_size = 1;  // number of nodes
  std::string master_addr;   // host of the store; empty if there is none (started by hand)
  int master_port = 0;       // TCP port of the store; 0 if there is none
  bool agent_store = false;  // the launcher hosts the store, so rank 0 is a client like the others
  int restart_count = 0;     // number of restarts of the job before this round
  int max_restarts = 0;
  std::string run_id;      // job id; empty without an elastic launcher
  std::string error_file;  // path for the error report (JSON); empty: none expected
  uint64_t round = 0;      // ddprun's round number, which never decreases; 0 under other launchers

  // False if neither RANK nor WORLD_SIZE is set: the program was started by hand, as rank 0 of 1.
  bool launched() const { return launched_; }

  // Reads this process's environment.
  // Errors: InvalidArgument names the variable that is missing or invalid, its value, and the expected values: RANK
  // without WORLD_SIZE or vice versa, a value that is not a number or out of range, several workers without MASTER_ADDR
  // or MASTER_PORT. LOCAL_RANK and LOCAL_WORLD_SIZE are optional in a world of one node.
  static absl::StatusOr<WorkerEnv> FromEnvironment();

  // Like FromEnvironment, from any source of variables; nullopt: not set. An empty value counts as not set.
  using Lookup = absl::FunctionRef<std::optional<std::string>(const char* name)>;
  static absl::StatusOr<WorkerEnv> FromVariables(Lookup lookup);

 private:
  bool launched_ = false;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_ENV_WORKER_ENV_H_
