#ifndef DDPRUN_LAUNCHER_PROGRESS_PROGRESS_WATCH_H_
#define DDPRUN_LAUNCHER_PROGRESS_PROGRESS_WATCH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "launcher/workers/worker_set.h"
#include "worker_contract/worker_link.h"

// PURE. Finds workers of one node that hang or are slow, from their progress reports. ProgressWatch learns how long
// each phase takes (DurationHistogram), decides which ranks hang or do not exit, and lets StragglerWatch compare the
// ranks' speeds; the ...Text functions write its effects as log lines.
namespace ddprun::launcher {

// A histogram of durations in constant memory. Its resolution is one part in eight: a percentile is never less
// than the true one, and at most an eighth more. Old durations fade: after every kFadeAt durations all counts are
// halved, which forgets durations seen once. Thread-compatible.
class DurationHistogram {
 public:
  static constexpr int64_t kFadeAt = 1 << 14;

  // Durations are clamped to a range of one millisecond to one week.
  void Add(absl::Duration duration);

  int64_t count() const { return count_; }
  // Returns the smallest duration that a `share` (above 0, at most 1) of all durations does not exceed. For n durations
  // with n * (1 - share) < 1 this is the largest. Zero if there are none.
  absl::Duration Percentile(double share) const;
  absl::Duration Largest() const { return Percentile(1); }

 private:
  // Each bucket's upper bound is an eighth above the previous one: 1 ms * 1.125^172 is more than a week.
  static constexpr int kBuckets = 173;

  std::array<int32_t, kBuckets> buckets_{};
  int64_t count_ = 0;
};

// A rank that makes the others wait in each step.
struct Straggler {
  int32_t local_rank = 0;
  absl::Duration own;     // its own time per step
  absl::Duration others;  // median of all ranks
  double ratio() const { return absl::FDivDuration(own, others); }

  friend bool operator==(const Straggler&, const Straggler&) = default;
};

// True for phases in which ranks wait for each other: names that contain "backward", "reduce", "barrier", "wait" or
// "sync", in any case.
bool IsSynchronizing(absl::string_view phase);

// Finds stragglers by comparing the ranks' own time per step, which is the time before the first synchronizing
// phase. All ranks take equally long for a whole step, because the faster ones wait in that phase. A rank's own time is
// the median of its last kSteps steps, so that a rare phase (a checkpoint, a pause) makes no straggler.
// Thread-compatible.
class StragglerWatch {
 public:
  static constexpr int kSteps = 50;
  // A straggler's own time is at least kRatio times the median rank's, and exceeds it by at least this share of a step.
  static constexpr double kRatio = 1.5;
  static constexpr double kLeastShareOfStep = 0.05;

  explicit StragglerWatch(int32_t slots) : ranks_(slots) {}

  // The rank has spent `duration` in `phase`.
  void OnPhase(int32_t local_rank, absl::string_view phase, absl::Duration duration);
  // The rank has completed a step. `counts` is false for a step to ignore, such as a warm-up step. Once all of `ranks`
  // have completed kSteps steps, returns the stragglers among them, slowest first, and starts over.
  std::vector<Straggler> OnStep(int32_t local_rank, bool counts, const std::vector<int32_t>& ranks);

 private:
  struct Rank {
    absl::Duration own;  // own time in the current step
    absl::Duration step;
    bool synchronized = false;         // a synchronizing phase was seen in this step
    std::vector<absl::Duration> owns;  // own times of its last steps
    std::vector<absl::Duration> steps;
  };
  std::vector<Straggler> Compare(const std::vector<int32_t>& ranks);

  std::vector<Rank> ranks_;
};

// A worker's position: its latest progress report.
struct WorkerStanding {
  int32_t local_rank = 0;
  int64_t step = 0;
  std::string phase;     // empty: not reported
  absl::Duration stood;  // time in this phase
  absl::Duration usual;  // median duration of this phase; zero: unknown
  absl::Duration limit;  // time after which it counts as hung; infinite: none, the phase is new
};

namespace effect {
// Workers of this node have made no progress for longer than their limits.
struct Hang {
  // The least advanced ranks, which the others wait for. If all reporting ranks are equally far, all of them: then they
  // wait for each other, for a worker that reports nothing, or for another node.
  std::vector<WorkerStanding> behind;
  std::vector<WorkerStanding> waiting;  // further ranks that have reported
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
// Some workers are slower than the others. Reported at most once a minute.
struct Stragglers {
  std::vector<Straggler> ranks;  // not empty, slowest first
};
}  // namespace effect

using ProgressEffect = std::variant<effect::Hang, effect::HangEnded, effect::NotExited, effect::Stragglers>;
using ProgressEffects = std::vector<ProgressEffect>;

// Detects hung and slow workers of one node from their progress reports (docs/worker_protocol.md 3.2).
//
// Hung ranks: in synchronous training one hung rank makes all others wait, and those exceed any limit too. Therefore
// only the least advanced ranks are considered: those with the smallest step, and among them those that have reported
// the fewest phases in it. (Phases that not all ranks report, such as rank 0's "checkpoint", do not count, but a rank
// in such a phase which synchronizes is further than one that is not.) They are hung when each of them has exceeded its
// limit, measured from when it entered its phase or from when one of them last made progress, whichever is later.
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
// Several nodes: if all ranks of the node are equally far in a job of several nodes, and their phase synchronizes, is
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
    absl::Duration fixed_limit =
        absl::ZeroDuration();  // limit of all phases, from the first step; zero: limits are learned
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

  // Reports outside a round are ignored.
  void OnProgress(int32_t local_rank, const worker_contract::LinkProgress& progress, SteadyTime now,
                  ProgressEffects* effects);
  void OnEnded(int32_t local_rank, SteadyTime now);

  void OnDeadline(SteadyTime now, ProgressEffects* effects);
  SteadyTime NextDeadline() const;

 private:
  // Step resets, step, common phases entered in it, and whether the rank waits in a phase that not all report.
  using Position = std::tuple<int64_t, int64_t, int64_t, bool>;
  struct Rank {
    bool ended = false;
    bool reported = false;
    int64_t pass = 0;
    int64_t step = 0;
    int steps = 0;  // number of steps begun in this round
    size_t phase = 0;
    std::vector<int> entered;  // times each phase was entered in this step
    SteadyTime since;          // time at which it entered its phase
    SteadyTime own_since;      // time since which it has not been waiting for others
    bool measured = true;      // false: the launcher was not running at some time in this phase
    bool overdue = false;      // it has finished and was reported
  };
  struct Phase {
    std::string name;
    DurationHistogram durations;
    std::vector<int> times;      // times that each local rank was in it
    std::vector<bool> reported;  // true for local ranks that reported it
    absl::Duration limit = absl::InfiniteDuration();
  };

  bool Exists(int32_t local_rank) const { return local_rank >= 0 && local_rank < static_cast<int32_t>(ranks_.size()); }
  size_t PhaseOf(const std::string& name);
  // Called before the rank enters another phase.
  void Leave(int32_t local_rank, SteadyTime now, ProgressEffects* effects);
  void LeaveStep(int32_t local_rank, SteadyTime now, ProgressEffects* effects);
  void Learn(Phase* phase, int32_t local_rank, absl::Duration duration) const;
  // Updates running_ and behind_.
  void UpdatePositions(SteadyTime now);
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
  // Time at which to report, or kill, this rank for not exiting.
  SteadyTime ExitDeadline(const Rank& rank) const;
  void OnExitDeadlines(SteadyTime now, ProgressEffects* effects);
  WorkerStanding StandingOf(int32_t local_rank, SteadyTime now) const;

  const Settings settings_;
  bool in_round_ = false;
  bool other_nodes_ = false;
  std::vector<Rank> ranks_;    // indexed by local rank
  std::vector<Phase> phases_;  // entry kMostPhases is shared by all further names; it has no limit
  LocalRanks running_;         // have reported, and have neither ended nor finished
  LocalRanks behind_;          // least advanced of the running ranks
  SteadyTime moved_at_;        // time at which a rank of behind_ last made progress
  SteadyTime trained_at_;      // time at which the last rank finished or ended
  LocalRanks hung_;            // ranks whose hang was reported, without progress since
  Timer repeat_report_;
  absl::Duration repeat_interval_;
  StragglerWatch stragglers_;
  SteadyTime next_stragglers_ = SteadyTime::InfinitePast();
};

// The effects as log lines, one line each, without a newline. `base_rank` is the rank of the node's first worker.

// A worker's position: "phase forward of step 120" or "step 120".
std::string StandingText(const WorkerStanding& standing);

// "rank 3 has been in phase forward of step 120 for 4.2s (usually 300ms, limit 1.0s); ranks 0-2 wait in phase backward
// of step 120"
// "ranks 0-3 have been in phase backward of step 120 for 1m5s (usually 200ms, limit 1m0s): they wait for each other or
// for another node (see its launcher's log)"
// REQUIRES: hang.behind is not empty.
std::string HangText(const effect::Hang& hang, int32_t base_rank);

// Failure message of a worker that is killed for hanging: "hung in phase forward of step 120 for 4.2s (limit 1.0s);
// killed (--on-hang=restart)".
std::string HangFailureText(const WorkerStanding& standing);

// "rank 3 continued after 4.2s in phase forward of step 120"
std::string HangEndedText(const effect::HangEnded& hang, int32_t base_rank);

// "rank 3 (pid 77) has run to the end of its program and has not exited for 5m0s; it counts as finished, and is killed
// after 10m0s if it is idle"
// "rank 3 (pid 77) has finished its training and has not exited for 5m0s"
// "rank 3 (pid 77) has run to the end of its program and has not exited for 10m0s: killed; it counts as finished"
std::string NotExitedText(const effect::NotExited& not_exited, int32_t base_rank, int64_t pid);

// "rank 3 is slow: it computes 450ms of a step before the ranks wait for each other, 1.5 times the median of this
// node's ranks (300ms)"; several ranks: one after the other.
std::string StragglersText(const effect::Stragglers& stragglers, int32_t base_rank);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_PROGRESS_WATCH_H_
