#ifndef DDPRUN_WORKER_RUNTIME_ENV_WORKER_ENV_H_
#define DDPRUN_WORKER_RUNTIME_ENV_WORKER_ENV_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace ddprun {

// Who this worker is among the workers of its job, as the launcher (ddprun or torchrun) says by environment variables;
// worker_contract/environment.h lists them. A plain value; thread-compatible.
struct WorkerEnv {
  int rank = 0;              // 0 to world_size - 1
  int world_size = 1;        // workers on all nodes
  int local_rank = 0;        // 0 to local_world_size - 1: its place on its node, and its GPU
  int local_world_size = 1;  // workers on its node
  int group_rank = 0;        // its node among the nodes
  int group_world_size = 1;  // nodes
  std::string master_addr;   // host of the store; empty if there is none to meet in (started alone)
  int master_port = 0;       // TCP port of the store; 0 if there is none
  bool agent_store = false;  // a launcher hosts the store, so rank 0 is a client like all others
  int restart_count = 0;     // how often the job was restarted before this round
  int max_restarts = 0;
  std::string run_id;      // the job's id; empty if started without an elastic launcher
  std::string error_file;  // where last words go as JSON; empty: nobody would read them
  uint64_t round = 0;      // ddprun's round, which only grows; 0 under other launchers

  // False if neither RANK nor WORLD_SIZE is set: a program started by hand, which is rank 0 of 1.
  bool launched() const { return launched_; }

  // Reads this process' environment.
  // Errors: InvalidArgument names the variable that is missing or bad, its value, and what was expected: RANK without
  // WORLD_SIZE (or the other way), a value that is no number or out of range, a world of several workers without
  // MASTER_ADDR or MASTER_PORT. LOCAL_RANK and LOCAL_WORLD_SIZE may be missing in a world of one node only.
  static absl::StatusOr<WorkerEnv> FromEnvironment();

  // The same from any source of variables; nullopt: not set. An empty value counts as not set, but for the error file.
  using Lookup = absl::FunctionRef<std::optional<std::string>(const char* name)>;
  static absl::StatusOr<WorkerEnv> FromVariables(Lookup lookup);

 private:
  bool launched_ = false;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_ENV_WORKER_ENV_H_
