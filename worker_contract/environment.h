#ifndef DDPRUN_WORKER_CONTRACT_ENVIRONMENT_H_
#define DDPRUN_WORKER_CONTRACT_ENVIRONMENT_H_

// Names of the environment variables by which the launcher tells a worker who it is. All but the last group are
// torchrun's, with torchrun's meaning, so that a program written for torchrun runs unchanged. Values are decimal
// numbers unless stated.
namespace ddprun::worker_contract {

// ---- the worker among all workers of the round ----
inline constexpr char kRank[] = "RANK";                        // 0 to WORLD_SIZE-1; may differ from round to round
inline constexpr char kWorldSize[] = "WORLD_SIZE";             // workers on all nodes, of all roles
inline constexpr char kLocalRank[] = "LOCAL_RANK";             // 0 to LOCAL_WORLD_SIZE-1: its place on its node
inline constexpr char kLocalWorldSize[] = "LOCAL_WORLD_SIZE";  // workers on its node
inline constexpr char kGroupRank[] = "GROUP_RANK";             // its node's rank among the nodes
inline constexpr char kGroupWorldSize[] = "GROUP_WORLD_SIZE";  // number of nodes

// ---- the worker among the workers of its role ----
inline constexpr char kRoleName[] = "ROLE_NAME";  // text: the launcher's --role
inline constexpr char kRoleRank[] = "ROLE_RANK";
inline constexpr char kRoleWorldSize[] = "ROLE_WORLD_SIZE";

// ---- where the workers meet ----
inline constexpr char kMasterAddr[] = "MASTER_ADDR";  // host name or address of this round's store
inline constexpr char kMasterPort[] = "MASTER_PORT";  // its port: a fresh one every round
// "True": a launcher hosts the store at MASTER_ADDR:MASTER_PORT, so every worker, rank 0 too, is its client.
inline constexpr char kUseAgentStore[] = "TORCHELASTIC_USE_AGENT_STORE";

// ---- the job ----
inline constexpr char kRestartCount[] = "TORCHELASTIC_RESTART_COUNT";  // of the whole job: the same on every node
inline constexpr char kMaxRestarts[] = "TORCHELASTIC_MAX_RESTARTS";
inline constexpr char kRunId[] = "TORCHELASTIC_RUN_ID";  // text: the job id; its presence means "started elastically"
// Path of a JSON file into which the worker may write its last error; empty: nobody will read one.
inline constexpr char kErrorFile[] = "TORCHELASTIC_ERROR_FILE";
// Names, separated by commas, of the signals on which the launcher stops the job.
inline constexpr char kSignalsToHandle[] = "TORCHELASTIC_SIGNALS_TO_HANDLE";

// ---- defaults that the launcher gives when its own environment has none ----
// What LibTorch's watchdog does when an NCCL collective fails or times out. The launcher's default is torchrun's, as
// a worker in Python can't be told otherwise. The C++ runtime reports such an error itself, with the rank that caused
// it, and replaces that default by its own; any other value is the user's and stays (3 also ends the worker).
inline constexpr char kNcclAsyncErrorHandling[] = "TORCH_NCCL_ASYNC_ERROR_HANDLING";
inline constexpr char kNcclErrorsEndTheWorker[] = "1";       // the launcher's default
inline constexpr char kNcclErrorsAreReported[] = "2";        // the C++ runtime's
inline constexpr char kOmpNumThreads[] = "OMP_NUM_THREADS";  // 1 if several workers share the node

// text, a name: the interface of the address by which other nodes reach this one; only in jobs of several nodes.
inline constexpr char kGlooInterface[] = "GLOO_SOCKET_IFNAME";

// ---- ddprun's own ----
inline constexpr char kRound[] = "DDPRUN_ROUND";             // grows with every round; fences off older rounds
inline constexpr char kPortRange[] = "DDPRUN_PORT_RANGE";    // text, with --port-range: "29400-29499 except 29400"
inline constexpr char kLauncherId[] = "DDPRUN_LAUNCHER_ID";  // text: one name per launcher process
// Seconds, with a fraction, from the signal that stops the job to SIGKILL: the time to save.
inline constexpr char kStopGrace[] = "DDPRUN_STOP_GRACE";
// text: the address of the worker link (docs/worker_protocol.md): "@" and the name of a socket in the abstract
// namespace.
inline constexpr char kWorkerLink[] = "DDPRUN_WORKER_LINK";
inline constexpr char kJobEndTime[] = "DDPRUN_JOB_END_TIME";  // unix seconds: the end of the job's time, where known

}  // namespace ddprun::worker_contract

#endif  // DDPRUN_WORKER_CONTRACT_ENVIRONMENT_H_
