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
#include "base/timer.h"
#include "launcher/progress/duration_histogram.h"
#include "launcher/progress/straggler_watch.h"
#include "launcher/workers/worker_set.h"
#include "worker_contract/phase_names.h"
#include "worker_contract/worker_link.h"

namespace ddprun::launcher {

// Where a worker is: what it reported last.
struct Standing {
  int32_t local_rank = 0;
  int64_t step = 0;
  std::string phase;     // empty: not said
  absl::Duration stood;  // for how long
  absl::Duration usual;  // the median of this phase; zero: not known
  absl::Duration limit;  // beyond which it counts as hung; infinite: none, the phase is new
};

namespace effect {
// Workers of this node have not got on for longer than their limits.
struct Hang {
  // Those that the others wait for: they have got least far. All that have reported, if all have got equally far: then
  // they wait for each other, for a worker that reports nothing, or for another node.
  std::vector<Standing> behind;
  std::vector<Standing> waiting;  // the others that have reported
  LocalRanks silent;              // run, and have reported nothing in this round
  LocalRanks ended;
  LocalRanks finished;     // run, and have reported that their training is over
  bool elsewhere = false;  // all have got equally far and may be waiting for another node
  bool again = false;      // nothing has changed since it was reported
};
// A worker whose hang was reported has gone on.
struct WentOn {
  Standing stood;  // before
};
// A worker has finished its training and still runs, and has reported nothing more for this long.
struct NotExited {
  int32_t local_rank = 0;
  absl::Duration stood;
  absl::Duration killed_after;  // infinite: never, it may have more to do than to exit
  bool kill = false;            // now, if it is idle; else its time begins anew
};
// At most once a minute.
struct Stragglers {
  std::vector<Straggler> ranks;  // not empty, the slowest first
};
}  // namespace effect

using ProgressEffect = std::variant<effect::Hang, effect::WentOn, effect::NotExited, effect::Stragglers>;
using ProgressEffects = std::vector<ProgressEffect>;

// PURE: finds hung and slow workers of one node by what they report (docs/worker_protocol.md 3.2).
//
// Which rank hangs: in synchronous training one hung rank makes all others wait, and they exceed any bound too. Only
// the ranks that have got least far are looked at: those of the smallest step, and within it those that have reported
// the fewest phases. (Phases that not all ranks report, such as rank 0's "checkpoint", do not count.) They hang when
// each of them has exceeded its limit, counted from when it entered its phase or one of them last got on, whichever is
// later.
//
// The limit of a phase is learned from all ranks of the node: `factor` times the 99th percentile of its duration, twice
// the longest if that is more, and at least `least`. A rank's waiting does not count as duration, nor do the first
// kWarmUpSteps steps of a worker. There is no limit before a rank has been in the phase kLeastTimes times: rare phases
// as checkpoints and evaluations raise no alarm while they are new. Where workers report no phase, each step is one
// phase.
//
// A rank in phase "finished" or "exiting" does not count, whatever it does after its training, until it reports another
// phase. It is named once when it has reported nothing for kExit, or for the fixed limit. In phase "exiting" it is
// killed after twice that time, and has succeeded; not before all others have finished: it may wait for them.
//
// If all ranks of the node have got equally far in a job of several nodes, and their phase synchronizes, is
// "evaluation" or has no name, they may be waiting for another node, whose launcher knows more: the limit is doubled,
// and a learned one is at least kElsewhere.
//
// A call that comes more than kStall after NextDeadline() means that this process did not run: clocks begin anew.
// Thread-compatible.
class ProgressWatch {
 public:
  struct Settings {
    absl::Duration fixed_limit =
        absl::ZeroDuration();  // of all phases, also of the first steps; zero: limits are learned
    double factor = 3;
    absl::Duration least = absl::Seconds(1);  // of the learned ones
  };
  static constexpr int kWarmUpSteps = 3;
  static constexpr int kLeastTimes = 10;
  static constexpr absl::Duration kElsewhere = absl::Minutes(1);
  static constexpr absl::Duration kExit = absl::Minutes(5);
  static constexpr absl::Duration kStall = absl::Seconds(1);

  explicit ProgressWatch(Settings settings) : settings_(settings), stragglers_(0) {}

  // A round begins, with this many workers on this node. What was learned is forgotten.
  void StartRound(int32_t slots, bool other_nodes);
  // The workers are being stopped. Nothing is reported until the next round.
  void EndRound();

  // Ignored outside of a round.
  void OnProgress(int32_t local_rank, const worker_contract::LinkProgress& progress, SteadyTime now,
                  ProgressEffects* effects);
  void OnEnded(int32_t local_rank, SteadyTime now);

  void OnDeadline(SteadyTime now, ProgressEffects* effects);
  SteadyTime NextDeadline() const;

 private:
  using Position = std::tuple<int64_t, int64_t, int64_t>;  // times that its steps began anew, step, common phases in it
  struct Rank {
    bool ended = false;
    bool reported = false;
    int64_t pass = 0;
    int64_t step = 0;
    int steps = 0;  // that it has begun in this round
    size_t phase = 0;
    std::vector<int> entered;  // how often in this step; by phase
    SteadyTime since;          // in its phase
    SteadyTime own_since;      // since then it has waited for nobody
    bool measured = true;      // false: the launcher did not run meanwhile
    bool overdue = false;      // it has finished, and was named
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
  // The rank leaves its phase.
  void Leave(int32_t local_rank, SteadyTime now, ProgressEffects* effects);
  void LeaveStep(int32_t local_rank, SteadyTime now, ProgressEffects* effects);
  void Learn(Phase* phase, int32_t local_rank, absl::Duration duration) const;
  // Brings running_ and behind_ up to date.
  void Place(SteadyTime now);
  void ForgetHang();
  bool Finished(const Rank& rank) const { return worker_contract::IsAfterTraining(phases_[rank.phase].name); }
  bool MayWaitElsewhere() const;
  // Whether this process did not run.
  bool Stalled(SteadyTime now);
  absl::Duration Limit(const Rank& rank) const;
  SteadyTime HangsAt() const;
  SteadyTime HangDeadline() const;
  absl::Duration ExitLimit() const;
  // A rank has neither ended nor finished.
  bool Training() const;
  // When this rank is named, or killed, because it does not exit.
  SteadyTime ExitDeadline(const Rank& rank) const;
  void OnExitDeadlines(SteadyTime now, ProgressEffects* effects);
  Standing StandingOf(int32_t local_rank, SteadyTime now) const;

  const Settings settings_;
  bool in_round_ = false;
  bool other_nodes_ = false;
  std::vector<Rank> ranks_;    // by local rank
  std::vector<Phase> phases_;  // the last one stands for all further ones, and has no limit
  LocalRanks running_;         // have reported, and not ended
  LocalRanks behind_;          // of these, those that have got least far
  SteadyTime moved_at_;        // one of them got on
  SteadyTime trained_at_;      // the last rank finished or ended
  LocalRanks told_;            // their hang was reported, and they have not got on
  Timer tell_again_;
  absl::Duration tell_interval_;
  StragglerWatch stragglers_;
  SteadyTime next_stragglers_ = SteadyTime::InfinitePast();
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_PROGRESS_WATCH_H_
