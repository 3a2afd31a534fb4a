#ifndef DDPRUN_RENDEZVOUS_CORE_LATENESS_H_
#define DDPRUN_RENDEZVOUS_CORE_LATENESS_H_

#include "absl/time/time.h"
#include "base/steady_time.h"

namespace ddprun::rendezvous {

// PURE: how late this server is with its own work, so that it does not take a node for silent whose heartbeats it has
// not read yet (protocol 4.7). There are two signs:
//
//   - it does something long after it was due: it was stopped, or got no CPU. Heartbeats that arrived meanwhile may
//     wait to be read, for as long again; no node counts as silent before.
//   - heartbeats of most nodes come late, for which no single node can be the reason: an average over all beats.
//     A node that is heard now has that much more time for its next one.
//
// Only the moment at which a silent node counts as lost is put off. The time until its workers are certainly gone
// (FenceTime) is counted from when it was last heard, and never gets shorter. Thread-compatible.
class Lateness {
 public:
  static constexpr absl::Duration kTolerance = absl::Milliseconds(50);  // of a timer on a busy machine
  static constexpr absl::Duration kMost = absl::Seconds(30);            // by which a loss is put off
  static constexpr int kBeatsAveraged = 32;

  // The server comes to work at `now`; something has been due since `due` (in the future: nothing is).
  void OnTurn(SteadyTime due, SteadyTime now);

  // A heartbeat that was to come after `interval` came after `gap`.
  void OnBeat(absl::Duration gap, absl::Duration interval);

  // By how much later than at its heartbeat timeout a node that is heard now is missed. At most kMost.
  absl::Duration Allowance() const;

  // No node counts as silent before this time, which never goes back.
  SteadyTime excused_until() const { return excused_until_; }

 private:
  absl::Duration beats_late_;  // average
  SteadyTime excused_until_ = SteadyTime::InfinitePast();
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_LATENESS_H_
