#ifndef DDPRUN_LAUNCHER_MACHINE_ROUND_FAILURES_H_
#define DDPRUN_LAUNCHER_MACHINE_ROUND_FAILURES_H_

#include <optional>
#include <vector>

#include "base/steady_time.h"
#include "base/timer.h"
#include "launcher/report/first_cause.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// PURE: the failures of one node's workers in one round: which of them is the first cause, and whether that can be said
// yet. Where a batch system sends its signals to every process, a worker's end may be such a signal's work before the
// launcher has seen the signal; it is then held back for `hold`, in which a better cause may be found, too. A SIGKILL
// is held back for a moment there: it may be the first of those that end all processes of the node.
// Thread-compatible.
class RoundFailures {
 public:
  // Zero: nothing is held back.
  explicit RoundFailures(absl::Duration hold) : hold_(hold) {}

  // Another round begins.
  void Clear();

  // Workers that were found to have failed in the same instant. Does nothing if there are none.
  void Add(const std::vector<FailureEvidence>& found, SteadyTime now);

  // The cause, if it is to be told now; true once. Then it is cause().
  bool Take(SteadyTime now);
  // What is held back is not to be told: a signal, or the end of the round, explains it.
  void Forget();

  // REQUIRES: Take returned true.
  const rendezvous::WorkerFailure& cause() const { return cause_->failure; }
  // The others of the round on this node, in the order in which they were found.
  const std::vector<rendezvous::WorkerFailure>& siblings() const { return siblings_; }

  SteadyTime NextDeadline() const { return due_.at(); }

 private:
  const absl::Duration hold_;
  std::optional<FailureEvidence> cause_;
  std::vector<rendezvous::WorkerFailure> siblings_;
  Timer due_;  // runs while cause_ is held back
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_ROUND_FAILURES_H_
