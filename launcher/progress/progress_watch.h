#ifndef DDPRUN_LAUNCHER_PROGRESS_PROGRESS_WATCH_H_
#define DDPRUN_LAUNCHER_PROGRESS_PROGRESS_WATCH_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/steady_time.h"
#include "launcher/progress/duration_histogram.h"
#include "launcher/progress/straggler_watch.h"
#include "launcher/workers/worker_set.h"
#include "worker_contract/phase_names.h"
#include "worker_contract/worker_link.h"

namespace ddprun::launcher {

// A worker's position: its latest progress report.
struct WorkerStanding {
  int32_t local_rank = 0;
  int64_t step = 0;
  std::string phase;     // empty: not reported
  absl::Duration stood;  // time in this phase
  absl::Duration usual;  // median duration of this phase; zero: unknown
  absl::Duration limit;  // beyond which it counts as hung; infinite: none, the phase is new
};

namespace effect {
// Workers of this node have made no progress for longer than their limits.
struct Hang {
  // The least advanced ranks, which the others wait for. If all reporting ranks are equally far, all of them: then they
  // wait for each other, for a worker that reports nothing, or for another node.
  std::vector<WorkerStanding> behind;
  std::vector<WorkerStanding> waiting;  // other ranks that have reported
  LocalRanks silent;                    // running, but without a report in this round
  LocalRanks ended;
  LocalRanks finished;     // running, and have reported the end of their training
  bool elsewhere = false;  // all are equally far and may be waiting for another node
  bool again = false;      // repeated: nothing has changed since the last report
};
// A worker whose hang was reported has made progress.
struct HangEnded {
  WorkerStanding stood;  // its position before that
};
// A worker has finished its training, still runs, and has reported nothing for this long.
struct NotExited {
  int32_t local_rank = 0;
  absl::Duration stood;
  absl::Duration killed_after;  // infinite: never, it may have other work to do
  bool kill = false;            // kill it now if it is idle; otherwise its time starts over
};
// Reported at most once a minute.
struct Stragglers {
  std::vector<Straggler> ranks;  // not empty, slowest first
};
}  // namespace effect

using ProgressEffect = std::variant<effect::Hang, effect::HangEnded, effect::NotExited, effect::Stragglers>;
using ProgressEffects = std::vector<ProgressEffect>;

// PURE: detects hung and slow workers of one node from their progress reports (docs/worker_protocol.md 3.2).
//
// Hung ranks: in synchronous training one hung rank makes all others wait, and those exceed any limit too. Therefore
// only the least advanced ranks are considered: those with the smallest step, and among them those that have reported
// the fewest phases in it. (Phases that not all ranks report, such as rank 0's "checkpoint", do not count.) They are
// hung when each of them has exceeded its limit, measured from when it entered its phase or from when one of them last
// made progress, whichever is later.
//
// Limits: the limit of a phase is learned from all ranks of the node. It is the largest of `factor` times the 99th
// percentile of the phase's duration, twice its longest duration, and `least`. Time that a rank spends waiting for
// others does not count as duration, nor do the first kWarmUpSteps steps of a worker. A phase has no limit until some
// rank has been in it kLeastTimes times, so rare phases such as checkpoints and evaluations raise no alarm while they
// are new. For workers that report no phases, each step is one phase.
//
// Finished ranks: a rank in phase "finished" or "exiting" does not count, whatever it does after its training, until it
// reports another phase. It is reported once after kExit (or the fixed limit) without a report. In phase "exiting" it
// is killed after twice that time and counts as succeeded, but not before all other ranks have finished, because it may
// be waiting for them.
//
// Other nodes: if all ranks of the node are equally far in a job of several nodes, and their phase synchronizes, is
// "evaluation" or has no name, they may be waiting for another node, whose launcher can tell more. The limit is then
// doubled, and a learned limit is at least kElsewhere.
//
// Stalls: a call later than kStall after NextDeadline() means that this process was not running; the clocks then start
// over.
//
// Thread-compatible.
class ProgressWatch {
 public:
  struct Settings {
    absl::Duration fixed_limit = absl::ZeroDuration();  // for all phases, from the first step; zero: limits are learned
    double factor = 3;
    absl::Duration least = absl::Seconds(1);  // minimum of learned limits
  };
  static constexpr int kWarmUpSteps = 3;
  static constexpr int kLeastTimes = 10;
  static constexpr absl::Duration kElsewhere = absl::Minutes(1);
  static constexpr absl::Duration kExit = absl::Minutes(5);
  static constexpr absl::Duration kStall = absl::Seconds(1);

  explicit ProgressWatch(Settings settings) : settings_(settings), stragglers_(0) {}

  // Starts a round with this many workers on this node. Forgets everything learned before.
  void StartRound(int32_t slots, bool other_nodes);
  // The workers are being stopped: nothing is reported until the next round.
  void EndRound();

  // Ignored outside a round.
  void OnProgress(int32_t local_rank, const worker_contract::LinkProgress& progress, SteadyTime now,
                  ProgressEffects* effects);
  void OnEnded(int32_t local_rank, SteadyTime now);

  void OnDeadline(SteadyTime now, ProgressEffects* effects);
  SteadyTime NextDeadline() const;

 private:
  using Position = std::tuple<int64_t, int64_t, int64_t>;  // step resets, step, common phases entered in it
  struct Rank {
    bool ended = false;
    bool reported = false;
    int64_t pass = 0;
    int64_t step = 0;
    int steps = 0;  // number of steps begun in this round
    size_t phase = 0;
    std::vector<int> entered;  // times each phase was entered in this step
    SteadyTime since;          // when it entered its phase
    SteadyTime own_since;      // since when it has not been waiting for others
    bool measured = true;      // false: the launcher was not running at some time in this phase
    bool overdue = false;      // it has finished and was reported
  };
  struct Phase {
    std::string name;
    DurationHistogram durations;
    std::vector<int> times;      // by local rank
    std::vector<bool> reported;  // by local rank
    absl::Duration limit = absl::InfiniteDuration();
  };

  bool Exists(int32_t local_rank) const { return local_rank >= 0 && local_rank < static_cast<int32_t>(ranks_.size()); }
  size_t PhaseOf(const std::string& name);
  // Called before the rank enters another phase.
  void Leave(int32_t local_rank, SteadyTime now, ProgressEffects* effects);
  void LeaveStep(int32_t local_rank, SteadyTime now, ProgressEffects* effects);
  void Learn(Phase* phase, int32_t local_rank, absl::Duration duration) const;
  // Updates running_ and behind_.
  void Place(SteadyTime now);
  void ForgetHang();
  bool Finished(const Rank& rank) const { return worker_contract::IsAfterTraining(phases_[rank.phase].name); }
  bool MayWaitForOtherNode() const;
  // True if this process was not running for a while; restarts the clocks then.
  bool Stalled(SteadyTime now);
  absl::Duration Limit(const Rank& rank) const;
  SteadyTime HangsAt() const;
  SteadyTime HangDeadline() const;
  absl::Duration ExitLimit() const;
  // True if some rank has neither ended nor finished.
  bool Training() const;
  // When to report, or kill, this rank for not exiting.
  SteadyTime ExitDeadline(const Rank& rank) const;
  void OnExitDeadlines(SteadyTime now, ProgressEffects* effects);
  WorkerStanding StandingOf(int32_t local_rank, SteadyTime now) const;

  const Settings settings_;
  bool in_round_ = false;
  bool other_nodes_ = false;
  std::vector<Rank> ranks_;    // by local rank
  std::vector<Phase> phases_;  // entry kMostPhases is shared by all further names; it has no limit
  LocalRanks running_;         // have reported, and have neither ended nor finished
  LocalRanks behind_;          // the least advanced of these
  SteadyTime moved_at_;        // when one of them last made progress
  SteadyTime trained_at_;      // when the last rank finished or ended
  LocalRanks told_;            // ranks whose hang was reported and that have made no progress since
  Timer repeat_report_;
  absl::Duration repeat_interval_;
  StragglerWatch stragglers_;
  SteadyTime next_stragglers_ = SteadyTime::InfinitePast();
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_PROGRESS_WATCH_H_
