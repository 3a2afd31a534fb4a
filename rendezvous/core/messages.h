#ifndef DDPRUN_RENDEZVOUS_CORE_MESSAGES_H_
#define DDPRUN_RENDEZVOUS_CORE_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"

// What launchers and the rendezvous server tell each other, as plain values (docs/protocol.md gives the sections
// cited here). proto/rendezvous.proto is the same on the wire and rendezvous/wire converts between the two.
namespace ddprun::rendezvous {

// What this build speaks (protocol 7). It grows when a message's meaning changes, not when something is added.
inline constexpr uint32_t kProtocolVersion = 1;

// Settings that every launcher of one job must bring alike (protocol 2.1); a node that differs is rejected.
struct JobSettings {
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;                                     // restarts of the whole job's workers
  absl::Duration join_timeout = absl::Minutes(10);          // how long a job waits for missing nodes
  absl::Duration last_call = absl::Seconds(30);             // how long it waits for more once min_nodes are there
  absl::Duration heartbeat_timeout = absl::Seconds(3);      // a silent node is lost after this; beats come at a sixth
  absl::Duration reconnect_grace = absl::Milliseconds(80);  // a node whose stream broke is lost after this
  absl::Duration restart_window;   // max_restarts is for any span of this length; zero: for the job's life
  absl::Duration restart_backoff;  // before the first restart of a series, doubled for each one more; zero: none
  int max_failures_at_step = 3;    // of one rank at one step in a row: then the job ends; 0: no limit
  // A node whose workers fail round after round is left out for this, doubled each time; zero: it never is.
  absl::Duration node_cooldown = absl::Minutes(1);

  friend bool operator==(const JobSettings&, const JobSettings&) = default;
};

// One worker's end, as its launcher saw it. The first of a round is the job's first cause. Neither exit code nor
// signal: the worker lives, and said itself that it can't go on (docs/worker_protocol.md 5.4).
struct WorkerFailure {
  std::string host;
  int32_t rank = -1;  // -1: not a worker's failure (a lost node, a timeout)
  int32_t local_rank = -1;
  int64_t pid = 0;          // 0: never started
  int32_t exit_code = 0;    // of a worker that exited; 126 or 127 if its program could not be executed
  int32_t signal = 0;       // of a worker that was killed, else 0
  bool restartable = true;  // false: starting again is no use: program missing, no permission, or it said so
  bool oom_killed = false;  // the kernel said that it ran out of memory
  absl::Time at;            // wall time on its host: for people, never compared
  absl::Duration ran_for;
  std::string message;          // one line: the error file's message, else what happened
  std::string traceback;        // the error file's traceback, at most kMaxTracebackBytes
  std::string error_file;       // where the error file lies, if it does
  std::string progress;         // one phrase: where the worker was, if it said so (docs/worker_protocol.md 3.2)
  std::optional<int64_t> step;  // that it reported last, if it did

  // What a shell would report: the exit code, or 128 + signal; 1 if the worker lives.
  int32_t ExitStatus() const { return signal != 0 ? 128 + signal : exit_code != 0 ? exit_code : 1; }
  friend bool operator==(const WorkerFailure&, const WorkerFailure&) = default;
};
inline constexpr int kMaxTracebackBytes = 16 * 1024;

// How a job ended. The same at every launcher (protocol 5).
struct Verdict {
  bool succeeded = false;
  std::string reason;                        // one sentence
  std::optional<WorkerFailure> first_cause;  // of a failed job that a worker or a node brought down
  int32_t exit_code = 0;                     // with which every launcher ends

  friend bool operator==(const Verdict&, const Verdict&) = default;
};

// A node's place in one round. Its size does not depend on the number of nodes.
struct Assignment {
  uint64_t round = 0;
  int32_t group_rank = 0;
  int32_t group_world_size = 0;
  int32_t base_rank = 0;  // RANK of the node's local rank 0
  int32_t world_size = 0;
  int32_t base_role_rank = 0;  // ROLE_RANK of the node's local rank 0
  int32_t role_world_size = 0;
  std::string master_addr;  // where the store of this round listens: the launcher of group rank 0
  int32_t master_port = 0;
  int32_t restart_count = 0;   // restarts charged to the job so far
  std::string reason;          // one phrase: why this round began
  std::string master_host;     // name of the node of master_addr, for messages; may be empty
  std::string store_secret;    // that node's Join::store_secret: proves to the store that a launcher is of this round
  bool keeps_workers = false;  // the node's survivors go on; false: all its workers are started
  // RANK of the survivor whose training state all take, and its committed step. Unset: no survivor has one.
  std::optional<int32_t> state_source;
  std::optional<int64_t> state_step;
  // Group rank of the node in whose process the server is that has given out the round, if it has a place.
  std::optional<int32_t> server_node;

  friend bool operator==(const Assignment&, const Assignment&) = default;
};

// ---- launcher -> server ----

// A worker that outlived its round and waits, suspended, to go on in the next one.
struct Survivor {
  int32_t local_rank = 0;
  std::optional<int64_t> committed_step;  // optimizer steps that its state contains whole; unset: it has no state

  friend bool operator==(const Survivor&, const Survivor&) = default;
};

// First message of every stream. A launcher whose stream broke opens another and joins with a higher incarnation.
struct Join {
  // Where the node's workers stand, if it has been given ranks before (protocol 4.3).
  enum class Phase {
    kIdle,       // no workers: ready for a round
    kRunning,    // workers of `current` run
    kSucceeded,  // all workers of `current` ended well
    kStopping,   // workers of `current` are being stopped; a Ready follows
  };

  std::string job_id;
  std::string node_id;       // random, one per launcher process
  uint64_t incarnation = 1;  // grows with every Join of the same node_id
  std::string host;          // name, for people and for the order of ranks
  std::string address;       // where other nodes reach this one: MASTER_ADDR if it becomes group rank 0
  int32_t store_port = 0;    // of the fresh store that it already listens on
  int32_t slots = 1;         // workers that it starts: nproc_per_node
  std::string role = "default";
  std::optional<int32_t> node_rank;  // requested group rank
  std::string topology;              // nodes with the same leading parts are near each other; "" is unknown
  JobSettings settings;
  Phase phase = Phase::kIdle;
  std::optional<Assignment> current;  // the last assignment it took, if any
  // At every moment since it took `current` it was certain that the server counts on it: so no round was given out
  // without it since (protocol 4.5).
  bool in_touch = false;
  uint32_t protocol_version = kProtocolVersion;
  // Known to this launcher process and the server only: proves that a later Join of node_id is of the same process
  // (protocol 2.4).
  std::string session_secret;
  std::string store_secret;  // random, fresh with each store; for the nodes of its round only
  // The launcher's current timeout: the job's, or that of an earlier Welcome.
  absl::Duration heartbeat_timeout;
  std::vector<Survivor> survivors;  // of an idle node, by local rank; ignored in other phases
  bool can_reform = false;          // as in Ready
  std::string peer;                 // the address that it comes from; set by the server, empty if unknown
  std::string user;                 // Caller::name; set by the server
  bool in_process = false;          // of the server's own process: it sends no heartbeats; never set by a remote node
  // Of a node in the server's own process: the process of `current`'s server_node has ended, and with it its workers.
  bool server_node_ended = false;

  friend bool operator==(const Join&, const Join&) = default;
};

struct Heartbeat {
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};

// A worker of `round` failed. Only the first of a round counts.
struct WorkerFailed {
  uint64_t round = 0;
  WorkerFailure failure;
  friend bool operator==(const WorkerFailed&, const WorkerFailed&) = default;
};

// All workers of `round` on this node ended with 0.
struct GroupSucceeded {
  uint64_t round = 0;
  friend bool operator==(const GroupSucceeded&, const GroupSucceeded&) = default;
};

// This node is quiet: none of its workers of `left_round` computes any more (they are gone; a worker that outlives its
// round is suspended). It can take part in the next round, with this fresh store. A node says it again when a survivor
// is gone.
struct Ready {
  uint64_t left_round = 0;
  int32_t store_port = 0;
  std::string store_secret;
  std::vector<Survivor> survivors = {};  // by local rank, each at most once
  // Its workers can keep their processes from round to round; known of those of its last round, alive or not. A job in
  // which one node with ranks can't starts all workers again (protocol 3.8).
  bool can_reform = false;
  // The launcher was told that a round begins without it (ExcludedFromRound). It is not in touch any more, until its
  // next Assign.
  bool left_out = false;
  friend bool operator==(const Ready&, const Ready&) = default;
};

// The launcher goes by its own will (a signal, an error of its own). Not a worker failure.
struct Leave {
  std::string reason;
  bool has_workers = false;  // that it stops now: it beats until the stream ends, which says that they are gone
  // Somebody told it to stop by this signal, and nobody takes its place by himself (protocol 4.2); else 0.
  int32_t signal = 0;
  friend bool operator==(const Leave&, const Leave&) = default;
};

// Where one worker is, as it said last (docs/worker_protocol.md 3.2).
struct RankProgress {
  int32_t local_rank = 0;
  int64_t step = 0;                // not negative
  std::optional<int64_t> samples;  // that this rank has trained on; not negative
  std::string phase;               // at most kMaxPhaseBytes; empty: not said
  std::optional<double> loss;      // may be infinite or NaN
  absl::Duration ago;              // since it said so
  friend bool operator==(const RankProgress&, const RankProgress&) = default;
};
inline constexpr size_t kMaxPhaseBytes = 64;

// Where the workers of `round` are on this node: for people and statistics, nothing is decided by it. At most
// once per kProgressInterval, and not when nothing is new.
struct Progress {
  uint64_t round = 0;
  std::vector<RankProgress> ranks;  // that have said something since the last Progress, by local rank; bounded
  friend bool operator==(const Progress&, const Progress&) = default;
};
inline constexpr int kMaxRanksInProgress = 256;  // the others follow in the next one
inline constexpr absl::Duration kProgressInterval = absl::Seconds(1);

using LauncherMessage = std::variant<Join, Heartbeat, WorkerFailed, GroupSucceeded, Ready, Leave, Progress>;

// ---- server -> launcher ----

// The Join was accepted.
struct Welcome {
  absl::Duration heartbeat_interval;  // infinite: send none
  bool by_launcher = false;           // the server lives in a launcher, and dies with it
  uint32_t protocol_version = kProtocolVersion;
  absl::Duration heartbeat_timeout;  // of this node from now on (protocol 4.7)
  uint64_t missed_round = 0;         // the last round that was assigned without the node; 0: none
  std::string server_process;        // of a server in a launcher, for launchers on its machine (base/process_name.h)
  friend bool operator==(const Welcome&, const Welcome&) = default;
};

// Answer to a Heartbeat, in the order in which they came.
struct HeartbeatAck {
  friend bool operator==(const HeartbeatAck&, const HeartbeatAck&) = default;
};

// What the job waits for. Sent to waiting nodes some time after something changed, never on the fast path.
struct Waiting {
  bool spare = false;  // the job runs without this node, which may replace another
  int32_t nodes_joined = 0;
  int32_t min_nodes = 0;
  int32_t max_nodes = 0;
  std::vector<std::string> hosts;  // of nodes that joined: all of up to kMaxHostsTold, else kMaxHostsNamed
  absl::Duration remaining;        // until the last call ends, else until the join timeout
  bool last_call = false;
  std::string reason;  // why it waits again, if it ran before
  friend bool operator==(const Waiting&, const Waiting&) = default;
};
inline constexpr int kMaxHostsNamed = 16;
inline constexpr int kMaxHostsTold = 256;  // every node is told of so many, who may know who is missing

struct Assign {
  Assignment assignment;
  friend bool operator==(const Assign&, const Assign&) = default;
};

// Stop the workers of `round`, then send Ready: another round follows. To a node that is Ready with survivors: stop
// those as well, and send Ready again.
struct StopRound {
  uint64_t round = 0;
  std::string reason;                        // one sentence: what happened, where
  std::optional<WorkerFailure> first_cause;  // if a worker's failure is the reason
  bool keep_workers = false;                 // suspend those that can re-form instead
  bool at_step_end = false;                  // nothing is broken: they may finish their step first
  friend bool operator==(const StopRound&, const StopRound&) = default;
};

// The next round is to begin without this node, which is idle. It begins after the node's Ready that says `left_out`
// (protocol 3.9). Should the node be needed after all, an Assign follows.
struct ExcludedFromRound {
  uint64_t round = 0;  // at least this one
  std::string reason;  // one sentence
  friend bool operator==(const ExcludedFromRound&, const ExcludedFromRound&) = default;
};

// The job has ended. Stop what still runs and exit with the verdict's code.
struct Finish {
  Verdict verdict;
  friend bool operator==(const Finish&, const Finish&) = default;
};

// The Join was refused; nothing was changed by it.
struct Rejected {
  std::string reason;  // one line that says what to do
  friend bool operator==(const Rejected&, const Rejected&) = default;
};

using ServerMessage =
    std::variant<Welcome, HeartbeatAck, Waiting, Assign, StopRound, Finish, Rejected, ExcludedFromRound>;

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MESSAGES_H_
