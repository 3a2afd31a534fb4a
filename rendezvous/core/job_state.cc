#include "rendezvous/core/job_state.h"

namespace ddprun::rendezvous {
namespace {

using S = JobState;

constexpr Transition kTransitions[] = {
    {S::kWaiting, S::kLastCall, "the min-th node joined"},
    {S::kWaiting, S::kStopping, "the max-th node joined, or the min-th one and there is no last call"},
    {S::kWaiting, S::kRecovering, "a node reports a round of an earlier server"},
    {S::kWaiting, S::kFailed, "the join timeout expired, all launchers left, or a held failure ended the job"},

    {S::kLastCall, S::kStopping, "the last call ended, or the max-th node joined"},
    {S::kLastCall, S::kWaiting, "fewer than min nodes are left"},
    {S::kLastCall, S::kRecovering, "a node reports a round of an earlier server"},
    {S::kLastCall, S::kFailed, "all launchers left, or a held failure ended the job"},

    {S::kStopping, S::kRunning, "every participant is ready: ranks are assigned"},
    {S::kStopping, S::kWaiting, "fewer than min nodes are left"},
    {S::kStopping, S::kFailed, "workers do not stop, all launchers left, or a held failure ended the job"},

    {S::kRunning, S::kStopping, "a worker failed, a node was lost, or a node joined: the round is stopped"},
    {S::kRunning, S::kWaiting, "the round is stopped, and fewer than min nodes are left"},
    {S::kRunning, S::kFinished, "every group succeeded"},
    {S::kRunning, S::kFailed, "a worker failed and the job can't restart, or all launchers left"},

    {S::kRecovering, S::kRunning, "all nodes of the round have reported: it continues"},
    {S::kRecovering, S::kStopping, "nodes did not report in time, or the round was being stopped"},
    {S::kRecovering, S::kWaiting, "as to kStopping, but fewer than min nodes are left"},
    {S::kRecovering, S::kFinished, "all nodes of the round have reported success"},
    {S::kRecovering, S::kFailed, "a worker failed and the job can't restart, or all launchers left"},
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
