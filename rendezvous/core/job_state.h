#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_STATE_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_STATE_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/rendezvous.pb.h"

namespace ddprun::rendezvous {

// The states of a job (protocol 3 to 5) and its usual transitions. AllTransitions has all of them; Job::Enter checks
// them.
//
//              min nodes            last call over, or max nodes       all ready
//   kWaiting ------------> kLastCall ----------------------> kStopping ------> kRunning ---> kFinished
//    ^    ^                   |                               ^  |    ^             |
//    |    +---- node gone ----+                               |  |    +-------------+
//    +---------------- fewer than min nodes left -------------|--+      the round is stopped
//    |                                                        |         (failure, loss, late node)
//   kRecovering (a node reports a round of an earlier server) -+--> kRunning, if all nodes of that round report it
//
//   kFailed can follow every state except kFinished: restart limit reached, non-restartable failure, timeout, or all
//   launchers left.
enum class JobState {
  // Fewer than min nodes have joined.
  kWaiting = v1::Job::STATE_WAITING,
  // At least min nodes have joined; the job waits for more until the last call ends.
  kLastCall = v1::Job::STATE_LAST_CALL,
  // The next round is decided; it starts when all nodes have stopped their workers (protocol 3.3).
  kStopping = v1::Job::STATE_STOPPING,
  // A round is assigned; its nodes start, run or have finished their workers.
  kRunning = v1::Job::STATE_RUNNING,
  // Nodes report a round of an earlier server; the job waits for the round's other nodes (protocol 4.4).
  kRecovering = v1::Job::STATE_RECOVERING,
  kFinished = v1::Job::STATE_FINISHED,
  kFailed = v1::Job::STATE_FAILED,
};

struct Transition {
  JobState from;
  JobState to;
  absl::string_view why;
};

// Returns all allowed transitions.
absl::Span<const Transition> AllTransitions();

// True if AllTransitions() contains the transition.
bool IsTransition(JobState from, JobState to);

// Returns the displayed name: "waiting", "last call", ...
absl::string_view Name(JobState state);

// Returns the state of a displayed job.
inline JobState StateOf(const v1::Job& job) { return static_cast<JobState>(job.state()); }

inline bool IsEnd(JobState state) { return state == JobState::kFinished || state == JobState::kFailed; }

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_STATE_H_
