#include "rendezvous/core/job_state.h"

namespace ddprun::rendezvous {
namespace {

using S = JobState;

constexpr Transition kTransitions[] = {
    {S::kWaiting, S::kLastCall, "the min-th node joined"},
    {S::kWaiting, S::kStopping, "the max-th node joined, or the min-th one and there is no last call"},
    {S::kWaiting, S::kRecovering, "a node reports a round that this server did not give out"},
    {S::kWaiting, S::kFailed, "the join timeout is over, everybody is gone, or a held failure was a failure"},

    {S::kLastCall, S::kStopping, "the last call is over, or the max-th node joined"},
    {S::kLastCall, S::kWaiting, "fewer than min nodes are left"},
    {S::kLastCall, S::kRecovering, "a node reports a round that this server did not give out"},
    {S::kLastCall, S::kFailed, "everybody is gone, or a held failure was a failure"},

    {S::kStopping, S::kRunning, "every node at hand is ready: ranks are given out"},
    {S::kStopping, S::kWaiting, "fewer than min nodes are left"},
    {S::kStopping, S::kFailed, "workers do not stop, everybody is gone, or a held failure was a failure"},

    {S::kRunning, S::kStopping, "a worker failed, a node was lost, or a node joined: the round is left"},
    {S::kRunning, S::kWaiting, "the round is left with fewer than min nodes"},
    {S::kRunning, S::kFinished, "every group succeeded"},
    {S::kRunning, S::kFailed, "a worker failed and there is no restart left or no use in one, or everybody is gone"},

    {S::kRecovering, S::kRunning, "all nodes of the round have reported: it goes on as if nothing had happened"},
    {S::kRecovering, S::kStopping, "nodes are missing after the recovery time, or the round was being left"},
    {S::kRecovering, S::kWaiting, "the same, with fewer than min nodes"},
    {S::kRecovering, S::kFinished, "all nodes of the round have reported success"},
    {S::kRecovering, S::kFailed, "a worker failed and there is no restart left or no use in one, or everybody is gone"},
};

}  // namespace

absl::Span<const Transition> AllTransitions() { return kTransitions; }

bool IsTransition(JobState from, JobState to) {
  for (const Transition& t : kTransitions) {
    if (t.from == from && t.to == to) return true;
  }
  return false;
}

absl::string_view Name(JobState state) {
  switch (state) {
    case S::kWaiting: return "waiting";
    case S::kLastCall: return "last call";
    case S::kStopping: return "stopping";
    case S::kRunning: return "running";
    case S::kRecovering: return "recovering";
    case S::kFinished: return "finished";
    case S::kFailed: return "failed";
  }
  return "?";
}

}  // namespace ddprun::rendezvous
