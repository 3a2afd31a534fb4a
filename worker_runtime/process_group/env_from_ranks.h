#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_ENV_FROM_RANKS_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_ENV_FROM_RANKS_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker_runtime/env/worker_env.h"

namespace ddprun {

// Ranks that another system has assigned, such as MPI.
struct AssignedRanks {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;        // index on its host
  int local_world_size = 1;  // ranks on its host
};

// Sends rank 0's text to all ranks, and returns it: a collective of the other system, such as MPI_Bcast.
using BroadcastFromRankZero = absl::FunctionRef<absl::StatusOr<std::string>(std::string text)>;

// Environment for ProcessGroup::Create inside the program of another system, without a launcher's variables: rank 0
// hosts a store on a free port until its process ends, and sends its address with `broadcast`. Collective; all ranks
// must call it. Rank 0's host must be reachable under the name that uname returns; with all ranks on one host the
// loopback interface is used.
//
//   int rank = 0, size = 1;
//   MPI_Comm_rank(comm, &rank);
//   MPI_Comm_size(comm, &size);
//   DDPRUN_ASSIGN_OR_RETURN(auto env, ddprun::EnvFromRanks({rank, size, local_rank, local_size}, BroadcastOverMpi));
//   auto group = ddprun::ProcessGroup::Create(env);
//
// Errors: InvalidArgument: the ranks, without a broadcast; those of `broadcast`; on all ranks, Unavailable: rank 0
// can't host the store.
absl::StatusOr<WorkerEnv> EnvFromRanks(const AssignedRanks& ranks, BroadcastFromRankZero broadcast,
                                       absl::Duration timeout = absl::Minutes(30));

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_ENV_FROM_RANKS_H_
