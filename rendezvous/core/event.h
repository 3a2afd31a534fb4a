#ifndef DDPRUN_RENDEZVOUS_CORE_EVENT_H_
#define DDPRUN_RENDEZVOUS_CORE_EVENT_H_

#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "proto/control.pb.h"
#include "rendezvous/core/messages.h"

// Events in the life of a job, node or host, for users and monitoring programs (docs/rendezvousd.md). The server's
// decisions do not depend on events. proto/control.proto describes the fields of Event; here are its kinds.
namespace ddprun::rendezvous {

using v1::Event;

// Values of Event.kind. Programs depend on these names, so they do not change.
namespace event_kind {

inline constexpr char kJobCreated[] = "job.created";        // the job's first node joined
inline constexpr char kJobWaiting[] = "job.waiting";        // fewer than min nodes again; not reported for a new job
inline constexpr char kRoundAssigned[] = "round.assigned";  // round `round` has `nodes` nodes with `workers` workers
inline constexpr char kRoundStopped[] = "round.stopped";  // before it succeeded; `failure`: first cause, if a worker's
inline constexpr char kRoundHung[] = "round.hung";        // `rank` of `host` keeps others waiting (protocol 6.2)
inline constexpr char kRoundMismatch[] = "round.mismatch";    // `rank` has entered another collective than the others
inline constexpr char kRoundStraggler[] = "round.straggler";  // `rank` enters collectives later than the others
inline constexpr char kRoundContinued[] = "round.continued";  // a hang that was reported is over
inline constexpr char kWorkerFailed[] = "worker.failed";      // first cause of a round; later failures are not reported
inline constexpr char kNodeJoined[] = "node.joined";
inline constexpr char kNodeLost[] = "node.lost";          // silent, or not reconnected within the reconnect grace
inline constexpr char kNodeLeft[] = "node.left";          // the launcher sent Leave
inline constexpr char kNodeReturned[] = "node.returned";  // reconnected, to this server or from an earlier one
inline constexpr char kNodeCooldown[] = "node.cooldown";  // left out of rounds, its workers failed often (protocol 3.9)
inline constexpr char kJobFinished[] = "job.finished";    // all workers exited with 0
inline constexpr char kJobFailed[] = "job.failed";
inline constexpr char kJobStopped[] = "job.stopped";  // a command stopped the job
inline constexpr char kJobResized[] = "job.resized";  // a command set the size to `min_nodes` to `max_nodes`
inline constexpr char kNodeKicked[] = "node.kicked";  // a command removed the node
inline constexpr char kHostDrained[] = "host.drained";
inline constexpr char kHostUndrained[] = "host.undrained";

inline constexpr const char* kAll[] = {
    kJobCreated,     kJobWaiting,   kRoundAssigned, kRoundStopped, kRoundHung,  kRoundMismatch, kRoundStraggler,
    kRoundContinued, kWorkerFailed, kNodeJoined,    kNodeLost,     kNodeLeft,   kNodeReturned,  kNodeCooldown,
    kJobFinished,    kJobFailed,    kJobStopped,    kJobResized,   kNodeKicked, kHostDrained,   kHostUndrained};

}  // namespace event_kind

inline constexpr size_t kMaxEventTraceback = 2048;  // bytes of a failure's traceback

inline Event NewEvent(absl::string_view kind, std::string detail) {
  Event event;
  event.set_kind(std::string(kind));
  event.set_detail(std::move(detail));
  return event;
}

// True for the events that report the end of a job.
inline bool IsEnd(absl::string_view kind) {
  return kind == event_kind::kJobFinished || kind == event_kind::kJobFailed || kind == event_kind::kJobStopped;
}

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_EVENT_H_
