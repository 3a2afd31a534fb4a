#ifndef DDPRUN_RENDEZVOUS_CORE_EVENT_H_
#define DDPRUN_RENDEZVOUS_CORE_EVENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// An event in the life of a job, node or host, for users and monitoring programs (docs/rendezvousd.md). The server's
// decisions do not depend on events.
struct Event {
  enum class Kind {
    kJobCreated,     // the job's first node joined
    kJobWaiting,     // the job has fewer than min nodes again; not reported for a new job
    kRoundAssigned,  // round `round` was assigned to `nodes` nodes with `workers` workers
    kRoundStopped,   // the round was stopped before it succeeded; `failure`: its first cause, if a worker failed
    kWorkerFailed,   // the first cause of a round; later failures of the round are not reported
    kNodeJoined,
    kNodeLost,      // the node was silent, or did not reconnect within the reconnect grace
    kNodeLeft,      // the launcher sent Leave
    kNodeReturned,  // the node reconnected, to this server or from an earlier one
    kNodeCooldown,  // the node is left out of rounds for a while, because its workers failed repeatedly (protocol 3.9)
    kJobFinished,   // all workers exited with 0
    kJobFailed,
    kJobStopped,  // a command stopped the job
    kJobResized,  // a command set the job's size to `min_nodes` to `max_nodes`
    kNodeKicked,  // a command removed the node
    kHostDrained,
    kHostUndrained,
  };

  Kind kind = Kind::kJobCreated;
  std::string job_id;     // empty: an event of the server (host drained or undrained)
  uint64_t round = 0;     // the job's latest round at the time of the event; 0: none yet
  std::string node_id;    // Join.node_id, a secret: show ShownId(node_id) instead. Empty: not about one node
  std::string host;       // host of the node, or the host that was drained or undrained
  std::string detail;     // one sentence with the reason or the particulars
  std::string actor;      // user who gave the command; empty: no command caused the event
  int32_t nodes = 0;      // set for kRoundAssigned
  int32_t workers = 0;    // set for kRoundAssigned
  int32_t min_nodes = 0;  // set for kJobCreated, kJobResized
  int32_t max_nodes = 0;
  int32_t restart_count = 0;             // restarts charged to the job so far; 0 for events of hosts
  std::optional<int32_t> exit_code;      // set when the job ended: exit code of every launcher
  std::optional<WorkerFailure> failure;  // the traceback is truncated to kMaxEventTraceback bytes
  absl::Time time = {};                  // server's wall time, for display only

  friend bool operator==(const Event&, const Event&) = default;
};

inline constexpr int kEventKinds = static_cast<int>(Event::Kind::kHostUndrained) + 1;
inline constexpr size_t kMaxEventTraceback = 2048;

// Returns the public name of a kind, such as "round.assigned". Programs depend on these names, so they do not change.
constexpr absl::string_view Name(Event::Kind kind) {
  switch (kind) {
    case Event::Kind::kJobCreated: return "job.created";
    case Event::Kind::kJobWaiting: return "job.waiting";
    case Event::Kind::kRoundAssigned: return "round.assigned";
    case Event::Kind::kRoundStopped: return "round.stopped";
    case Event::Kind::kWorkerFailed: return "worker.failed";
    case Event::Kind::kNodeJoined: return "node.joined";
    case Event::Kind::kNodeLost: return "node.lost";
    case Event::Kind::kNodeLeft: return "node.left";
    case Event::Kind::kNodeReturned: return "node.returned";
    case Event::Kind::kNodeCooldown: return "node.cooldown";
    case Event::Kind::kJobFinished: return "job.finished";
    case Event::Kind::kJobFailed: return "job.failed";
    case Event::Kind::kJobStopped: return "job.stopped";
    case Event::Kind::kJobResized: return "job.resized";
    case Event::Kind::kNodeKicked: return "node.kicked";
    case Event::Kind::kHostDrained: return "host.drained";
    case Event::Kind::kHostUndrained: return "host.undrained";
  }
  return "unknown";
}
static_assert(Name(static_cast<Event::Kind>(kEventKinds)) == "unknown", "kEventKinds must count the last kind");

// True for the events that report the end of a job.
inline bool IsEnd(Event::Kind kind) {
  return kind == Event::Kind::kJobFinished || kind == Event::Kind::kJobFailed || kind == Event::Kind::kJobStopped;
}

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_EVENT_H_
