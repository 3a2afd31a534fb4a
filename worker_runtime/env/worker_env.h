#ifndef DDPRUN_WORKER_RUNTIME_ENV_WORKER_ENV_H_
#define DDPRUN_WORKER_RUNTIME_ENV_WORKER_ENV_H_

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "worker_contract/environment.h"

namespace ddprun {

// Ranks and settings of this worker, from the environment variables that the launcher (ddprun or torchrun) sets;
// worker_contract/environment.h lists them, and has the values that may differ from round to round (rank, world_size,
// master_addr, ...). A plain value; thread-compatible.
struct WorkerEnv : worker_contract::WorkerAssignment {
  int local_rank = 0;        // 0 to local_world_size - 1: index on its node, and of its GPU
  bool agent_store = false;  // the launcher hosts the store, so rank 0 is a client like the others
  int max_restarts = 0;
  std::string run_id;      // job id; empty without an elastic launcher
  std::string error_file;  // path for the error report (JSON); empty: none expected

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
