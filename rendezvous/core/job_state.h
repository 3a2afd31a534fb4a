#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_STATE_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_STATE_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ddprun::rendezvous {

//              min nodes            last call over, or max nodes       all ready
//   kWaiting ------------> kLastCall ----------------------> kStopping ------> kRunning ---> kFinished
//    ^    ^                   |                               ^  |    ^             |
//    |    +---- node gone ----+                               |  |    +-------------+
//    +---------------- fewer than min nodes at hand ----------|--+      the round is left
//    |                                                        |         (failure, loss, late node)
//   kRecovering (after a server restart) ---------------------+
//
//   kFailed is reached from every state but kFinished: budget spent, no use restarting, timeout, everybody gone.
enum class JobState {
  kWaiting,     // fewer than min nodes
  kLastCall,    // at least min nodes; waits for more of them for a while
  kStopping,    // a next round is decided; it begins when the nodes at hand have no workers left
  kRunning,     // the nodes of the round run, or ran, their workers
  kRecovering,  // nodes report a round that this server did not give out: waits for the others of it
  kFinished,
  kFailed,
};

struct Transition {
  JobState from;
  JobState to;
  absl::string_view why;
};

// Every transition there is.
absl::Span<const Transition> AllTransitions();

// True if the list contains the transition.
bool IsTransition(JobState from, JobState to);

// "waiting", "last call", ...
absl::string_view Name(JobState state);

inline bool IsEnd(JobState state) { return state == JobState::kFinished || state == JobState::kFailed; }

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_STATE_H_
