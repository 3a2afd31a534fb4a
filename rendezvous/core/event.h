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

// Something that happened to a job, a node or a host, once. For people and for programs that watch; the server decides
// nothing by it.
struct Event {
  enum class Kind {
    kJobCreated,     // its first node joined
    kJobWaiting,     // fewer than min nodes; not of a job that has just been created
    kRoundAssigned,  // `nodes` nodes with `workers` workers begin round `round`
    kRoundStopped,   // the round is over before its end; `failure` is its first cause, if a worker failed
    kWorkerFailed,   // the first failure of its round; later ones follow from it
    kNodeJoined,
    kNodeLost,      // silent, or its connection broke and it did not reconnect
    kNodeLeft,      // its launcher said so
    kNodeReturned,  // reconnected
    kNodeCooldown,  // left out of rounds for a while, because its workers failed again and again
    kJobFinished,   // all workers succeeded
    kJobFailed,
    kJobStopped,  // by a command
    kJobResized,  // by a command: from now on `min_nodes` to `max_nodes`
    kNodeKicked,  // by a command
    kHostDrained,
    kHostUndrained,
  };

  Kind kind = Kind::kJobCreated;
  std::string job_id;     // empty: of the server (hosts)
  uint64_t round = 0;     // the job's latest at that time; 0: none yet
  std::string node_id;    // as nodes join with; not for people (ShownId). Empty: not of one node
  std::string host;       // of the node, or the host itself
  std::string detail;     // one sentence: why, or what exactly
  std::string actor;      // who commanded it; empty: no command
  int32_t nodes = 0;      // kRoundAssigned
  int32_t workers = 0;    // kRoundAssigned
  int32_t min_nodes = 0;  // kJobCreated, kJobResized
  int32_t max_nodes = 0;
  int32_t restart_count = 0;             // charged to the job so far; of round and job events
  std::optional<int32_t> exit_code;      // of the launchers of a job that has ended
  std::optional<WorkerFailure> failure;  // its traceback is cut to kMaxEventTraceback
  absl::Time time = {};                  // wall time at the server: for people, never compared

  friend bool operator==(const Event&, const Event&) = default;
};

inline constexpr int kEventKinds = static_cast<int>(Event::Kind::kHostUndrained) + 1;
inline constexpr size_t kMaxEventTraceback = 2048;

// "round.assigned". Part of what programs rely on: names do not change.
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

// True for events that end their job.
inline bool IsEnd(Event::Kind kind) {
  return kind == Event::Kind::kJobFinished || kind == Event::Kind::kJobFailed || kind == Event::Kind::kJobStopped;
}

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_EVENT_H_
