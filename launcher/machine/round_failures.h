#ifndef DDPRUN_LAUNCHER_MACHINE_ROUND_FAILURES_H_
#define DDPRUN_LAUNCHER_MACHINE_ROUND_FAILURES_H_

#include <optional>
#include <vector>

#include "base/steady_time.h"
#include "launcher/report/first_cause.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// PURE: collects the failures of one node's workers in one round, determines the first cause, and decides when it may
// be reported. A batch system that signals every process may end a worker before the launcher has seen the signal. In
// that case a failure that such a signal may explain is held back for `hold`, during which a better cause may be found.
// A SIGKILL is held back only briefly, because it may be the first of those that end all processes of the node.
//
// A failure that reports lost peers is held back for kPeerHold while other workers of the job may explain it: a worker
// closes its connections before its process ends. The failure of another node ends the round meanwhile.
//
// Thread-compatible.
class RoundFailures {
 public:
  static constexpr absl::Duration kPeerHold = absl::Seconds(3);

  // Zero: nothing is held back.
  explicit RoundFailures(absl::Duration hold) : hold_(hold) {}

  // Starts another round with this number of workers on all nodes.
  void Clear(int32_t world_size);

  // Adds failures that were found at the same instant; may be empty.
  void Add(const std::vector<FailureEvidence>& found, SteadyTime now);

  // True, once, when the cause is to be reported; it is then cause().
  bool Take(SteadyTime now);
  // Drops the failure that is held back: a signal, or the end of the round, explains it. Lost peers are a consequence
  // then: one of the siblings.
  void Forget();

  // REQUIRES: Take returned true.
  const rendezvous::WorkerFailure& cause() const { return cause_->failure; }
  // Further failures of the round on this node, in the order in which they were found.
  const std::vector<rendezvous::WorkerFailure>& siblings() const { return siblings_; }

  SteadyTime NextDeadline() const { return due_.at(); }

 private:
  // Sets due_ for cause_.
  void Schedule(SteadyTime now);

  const absl::Duration hold_;
  int32_t world_size_ = 1;
  SteadyTime since_;  // when the first failure was found
  std::optional<FailureEvidence> cause_;
  std::vector<rendezvous::WorkerFailure> siblings_;
  Timer due_;  // runs while cause_ is held back
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_ROUND_FAILURES_H_
