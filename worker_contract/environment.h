#ifndef DDPRUN_WORKER_CONTRACT_ENVIRONMENT_H_
#define DDPRUN_WORKER_CONTRACT_ENVIRONMENT_H_

#include <cstdint>
#include <string>

// Names of the environment variables that the launcher sets for a worker. All but the last group are torchrun's, with
// torchrun's meaning, so that a program written for torchrun runs unchanged. Values are decimal numbers unless stated.
namespace ddprun::worker_contract {

// ---- the worker among all workers of the round ----
inline constexpr char kRank[] = "RANK";                        // 0 to WORLD_SIZE-1; may differ from round to round
inline constexpr char kWorldSize[] = "WORLD_SIZE";             // workers on all nodes, of all roles
inline constexpr char kLocalRank[] = "LOCAL_RANK";             // 0 to LOCAL_WORLD_SIZE-1: rank within its node
inline constexpr char kLocalWorldSize[] = "LOCAL_WORLD_SIZE";  // workers on its node
inline constexpr char kGroupRank[] = "GROUP_RANK";             // its node's rank among the nodes
inline constexpr char kGroupWorldSize[] = "GROUP_WORLD_SIZE";  // number of nodes

// ---- the worker among the workers of its role ----
inline constexpr char kRoleName[] = "ROLE_NAME";  // text: the launcher's --role
inline constexpr char kRoleRank[] = "ROLE_RANK";
inline constexpr char kRoleWorldSize[] = "ROLE_WORLD_SIZE";

// ---- rendezvous of the workers ----
inline constexpr char kMasterAddr[] = "MASTER_ADDR";  // host name or address of this round's store
inline constexpr char kMasterPort[] = "MASTER_PORT";  // its port: a new one in every round
// "True": a launcher hosts the store at MASTER_ADDR:MASTER_PORT, so every worker, including rank 0, connects as a
// client.
inline constexpr char kUseAgentStore[] = "TORCHELASTIC_USE_AGENT_STORE";

// ---- the job ----
inline constexpr char kRestartCount[] = "TORCHELASTIC_RESTART_COUNT";  // restarts of the whole job: equal on every node
inline constexpr char kMaxRestarts[] = "TORCHELASTIC_MAX_RESTARTS";
inline constexpr char kRunId[] = "TORCHELASTIC_RUN_ID";  // text: the job id; its presence means "started elastically"
// Path of a JSON file into which the worker may write its last error; empty: the file is not read.
inline constexpr char kErrorFile[] = "TORCHELASTIC_ERROR_FILE";
// Names, separated by commas, of the signals on which the launcher stops the job.
inline constexpr char kSignalsToHandle[] = "TORCHELASTIC_SIGNALS_TO_HANDLE";

// ---- defaults that the launcher sets unless its own environment has the variable ----
// Action of LibTorch's watchdog when an NCCL collective fails or times out. The launcher's default is torchrun's, for
// workers in Python. The C++ runtime reports such an error itself, with the rank that caused it, and replaces that
// default by its own; any other value was set by the user and is kept (3 also ends the worker).
inline constexpr char kNcclAsyncErrorHandling[] = "TORCH_NCCL_ASYNC_ERROR_HANDLING";
inline constexpr char kNcclErrorsEndTheWorker[] = "1";       // the launcher's default
inline constexpr char kNcclErrorsAreReported[] = "2";        // the C++ runtime's default
inline constexpr char kOmpNumThreads[] = "OMP_NUM_THREADS";  // 1 if several workers share the node

// text: the interface of the address by which other nodes reach this one; only in jobs of several nodes.
inline constexpr char kGlooInterface[] = "GLOO_SOCKET_IFNAME";

// ---- specific to ddprun ----
inline constexpr char kRound[] = "DDPRUN_ROUND";             // increases with every round; fences older rounds
inline constexpr char kPortRange[] = "DDPRUN_PORT_RANGE";    // text, with --port-range: "29400-29499 except 29400"
inline constexpr char kLauncherId[] = "DDPRUN_LAUNCHER_ID";  // text: a unique name per launcher process
// Seconds, with a fraction, from the signal that stops the job to SIGKILL: the time available for saving.
inline constexpr char kStopGrace[] = "DDPRUN_STOP_GRACE";
// text: the address of the worker link (docs/worker_protocol.md): "@" and the name of a socket in the abstract
// namespace.
inline constexpr char kWorkerLink[] = "DDPRUN_WORKER_LINK";
inline constexpr char kJobEndTime[] = "DDPRUN_JOB_END_TIME";  // unix seconds: end of the job's time limit, if known

// A worker's place in a round: what changes when a worker that keeps its process enters the next one. A new process
// reads it from the environment, a suspended one from the worker link's re-form (LinkReForm).
struct WorkerAssignment {
  uint64_t round = 0;            // ddprun's round number, which never decreases; 0 under other launchers
  int32_t rank = 0;              // 0 to world_size - 1
  int32_t world_size = 1;        // workers on all nodes
  int32_t local_world_size = 1;  // workers on its node
  int32_t group_rank = 0;        // index of its node
  int32_t group_world_size = 1;  // number of nodes
  std::string master_addr;       // host of the store; empty if there is none (started by hand)
  int32_t master_port = 0;       // TCP port of the store; 0 if there is none
  int32_t restart_count = 0;     // number of restarts of the job before this round

  friend bool operator==(const WorkerAssignment&, const WorkerAssignment&) = default;
};

}  // namespace ddprun::worker_contract

#endif  // DDPRUN_WORKER_CONTRACT_ENVIRONMENT_H_
