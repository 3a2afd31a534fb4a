#ifndef DDPRUN_LAUNCHER_HANG_HANG_WATCH_H_
#define DDPRUN_LAUNCHER_HANG_HANG_WATCH_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/steady_time.h"
#include "launcher/hang/judge.h"
#include "launcher/hang/stragglers.h"
#include "proto/hang.pb.h"

namespace ddprun::launcher {

// Effects of HangWatch.
namespace hang_effect {
// Ask each running worker for its counters.
struct AskCounters {};
// Sample the activity of workers whose counters have not changed since the last time.
struct Sample {};
// Collect the evidence of this node's running workers, if there are any, and pass it to OnOwnEvidence.
struct Collect {};
// Ask each running worker for its collectives, and pass them to OnCollectives.
struct AskCollectives {};
// Send this evidence to the launcher of group rank 0. Only on other nodes than that.
struct SendEvidence {
  hang::v1::NodeEvidence evidence;
};
// Report a hang to the user, on every node. Only on the node of group rank 0, as are the following.
struct Report {
  std::string text;            // lines, the first one names who waits for whom
  std::vector<int32_t> ranks;  // ranks at fault
};
// The hang that was reported last may be ended by killing these ranks (--on-hang=restart). At most once for each hang.
struct Replace {
  std::vector<int32_t> ranks;  // not empty
  std::string text;            // one line
};
// Ranks have entered different operations, and nothing hangs. At most once in a round.
struct ReportMismatch {
  std::string text;            // one line
  std::vector<int32_t> ranks;  // ranks that differ from the others, or all
};
// Ranks for which the others wait in each step; nothing hangs. Once, and again if the ranks are others.
struct ReportStragglers {
  std::string text;            // one line
  std::vector<int32_t> ranks;  // not empty
};
// The hang that was reported last is over.
struct Continued {
  std::string text;  // one line
};
}  // namespace hang_effect

using HangEffect =
    std::variant<hang_effect::AskCounters, hang_effect::Sample, hang_effect::Collect, hang_effect::AskCollectives,
                 hang_effect::SendEvidence, hang_effect::Report, hang_effect::Replace, hang_effect::ReportMismatch,
                 hang_effect::ReportStragglers, hang_effect::Continued>;
using HangEffects = std::vector<HangEffect>;

// PURE: decides when the workers of a round are looked at, and when a hang is reported. One per launcher.
//
// Looking: workers are asked for their counters every kAsk. A node stands after kSuspect without a change of a counter,
// or half of a shorter fixed limit. It then collects evidence, again after a quarter of the time that it
// has stood (at least as long, at most kMaxPause), so that all nodes look at about the same times. Other nodes send
// theirs to the launcher of group rank 0, and once every kMaxPause that they move; that keeps it informed of the nodes
// that answer.
//
// Judging: the launcher of group rank 0 judges after each collection of its own, once all nodes have sent evidence
// since about the previous one, or kPatience later without the others, whose ranks are unknown. There is no hang while
// a node moves.
//
// Reporting: a verdict counts if two judgements in a row name the same ranks. It is reported when they have been idle
// for the limit: three times the longest time after which idle ranks continued in this job, at least kLeastLimit, but
// never later than half of the operation's timeout unless that is less than kSuspect. A fixed limit replaces all that.
// If the odd ranks work, if no rank is to blame, or if a node does not answer, half of the timeout must be over. Ranks
// in a debugger are never reported.
//
// Mismatches that hang: once no counter has changed for kGlance and all workers of a node wait in collectives, they are
// asked for these, once in a pause. If all ranks of the job wait, and in different operations, that is a hang for
// certain, which is reported at once; what the stacks say follows with the first judgement. The entries of a full
// recorder cost a worker 50 ms: there are at most kGlances in a row, and one in each kGlanceInterval after that.
//
// Comparing: while the job moves, workers are asked for their collectives after kFirstComparison, then after twice that
// time, and so on up to kMaxComparison (less with a short fixed limit). A mismatch between ranks is reported if two
// comparisons in a row find the same ranks, because groups that are made again differ for a moment; so are stragglers.
// With one node, the second comparison of a mismatch follows soon after the first.
//
// Clocks: the times of entries are brought to the clock of this host. A message of another node that has arrived at t
// by this clock, and was sent at s by the node's own, shifts its times by t - s, which is too much by the time that the
// message took: the least of the last kClocks counts. Clocks that drift apart by a millisecond within that many minutes
// make an error of as much.
//
// Thread-compatible.
class HangWatch {
 public:
  struct Round {
    uint64_t round = 0;
    int32_t group_rank = 0;
    int32_t nodes = 1;
    int32_t world_size = 1;
    int32_t base_rank = 0;
    int32_t slots = 1;
    std::string host;
  };
  struct Settings {
    std::optional<absl::Duration> fixed_limit;  // --on-hang=ACTION:SECONDS
  };
  static constexpr absl::Duration kAsk = absl::Milliseconds(500);
  static constexpr absl::Duration kGlance = absl::Milliseconds(600);  // one answer may come in between
  static constexpr absl::Duration kGlanceInterval = absl::Minutes(4);
  static constexpr int kGlances = 4;
  static constexpr absl::Duration kSuspect = absl::Seconds(10);
  static constexpr absl::Duration kMaxPause = absl::Minutes(1);
  static constexpr absl::Duration kPatience = absl::Seconds(10);
  static constexpr absl::Duration kLeastLimit = absl::Seconds(30);
  static constexpr absl::Duration kInferredLimit = absl::Minutes(1);    // without records of the operation
  static constexpr absl::Duration kIdleLimit = absl::Minutes(5);        // no rank is in a collective
  static constexpr absl::Duration kUnknownTimeout = absl::Minutes(30);  // Gloo's default
  static constexpr absl::Duration kReplaceAfter = absl::Minutes(1);
  static constexpr absl::Duration kFirstComparison = absl::Minutes(2);
  static constexpr absl::Duration kMaxComparison = absl::Minutes(5);
  static constexpr size_t kClocks = 5;

  explicit HangWatch(Settings settings)
      : settings_(settings),
        suspect_(std::clamp(settings.fixed_limit.value_or(absl::InfiniteDuration()) / 2, absl::Seconds(1), kSuspect)),
        compare_after_(kFirstComparison * absl::FDivDuration(suspect_, kSuspect)) {}

  void StartRound(const Round& round, SteadyTime now);
  void EndRound() { round_.reset(); }

  // Counters of a worker's collectives, in any form that changes when one is entered or completed. `waits`: it has
  // entered one that has not completed.
  void OnCounters(int32_t local_rank, const std::string& counters, bool waits, SteadyTime now, HangEffects* effects);
  // The worker has ended; `text` is one phrase: "exited with code 0".
  void OnEnded(int32_t local_rank, const std::string& text, SteadyTime now, HangEffects* effects);
  // Evidence of this node's running workers, which `Collect` asked for. The watch adds round, host, times and the
  // workers that have ended.
  void OnOwnEvidence(const hang::v1::NodeEvidence& evidence, SteadyTime now, HangEffects* effects);
  // Likewise with what `AskCollectives` asked for.
  void OnCollectives(const hang::v1::NodeEvidence& evidence, SteadyTime now, HangEffects* effects);
  // Evidence of another node. Only on the node of group rank 0. Ignored if it is of another round.
  void OnNodeEvidence(const hang::v1::NodeEvidence& evidence, SteadyTime now, HangEffects* effects);

  SteadyTime NextDeadline() const;
  void OnDeadline(SteadyTime now, HangEffects* effects);

 private:
  struct Worker {
    std::optional<std::string> counters;
    bool waits = false;  // in a collective
    std::string ended;
  };
  struct Node {
    hang::v1::NodeEvidence evidence;
    SteadyTime arrived;
    // Time since which the node stands.
    SteadyTime since() const;
  };

  bool leads() const { return round_ && round_->group_rank == 0; }
  bool Exists(int32_t local_rank) const {
    return round_ && local_rank >= 0 && local_rank < static_cast<int32_t>(workers_.size());
  }
  absl::Duration Pause(absl::Duration stood) const;
  bool AllWait() const;
  hang::v1::NodeEvidence Blank(absl::Duration stood) const;
  void Moved(SteadyTime now, HangEffects* effects);
  void EndIdleTime(SteadyTime now);
  void EndPause(SteadyTime now, HangEffects* effects);
  // The pause has not ended by itself: nothing is learned from it.
  void ForgetPause();
  void TryJudge(SteadyTime now, HangEffects* effects);
  // Reports a mismatch in which all ranks wait.
  void FindDifference(SteadyTime now, HangEffects* effects);
  void NoteClock(int32_t group_rank, const hang::v1::NodeEvidence& evidence, SteadyTime now);
  void Compare(SteadyTime now, HangEffects* effects);
  void CompareOperations(const JobEvidence& job, SteadyTime now, HangEffects* effects);
  void CompareTimes(const JobEvidence& job, HangEffects* effects);
  void OnVerdict(const std::optional<Verdict>& verdict, const JobEvidence& job, SteadyTime since, bool complete,
                 SteadyTime now, HangEffects* effects);
  bool IsSoft(const Verdict& verdict, bool complete) const;
  absl::Duration LimitOf(const Verdict& verdict, bool complete) const;

  Settings settings_;
  absl::Duration suspect_;        // time without a change after which a node stands
  absl::Duration longest_pause_;  // longest time for which ranks were idle until they continued, in this job
  std::optional<Round> round_;
  std::vector<Worker> workers_;
  SteadyTime moved_;  // last time a counter of this node changed
  Timer ask_;
  Timer sample_;
  Timer glance_;  // running from a change after which all workers of the node wait
  SteadyTime glances_until_ = SteadyTime::InfinitePast();  // time for which the present ones were too many
  Timer look_;                     // running once a worker has answered, unless a collection is being made
  Timer announce_;                 // running likewise; used on nodes other than that of group rank 0
  bool sent_ = false;              // evidence was sent in this pause
  std::map<int32_t, Node> nodes_;  // indexed by group rank, on the node of group rank 0; its own included
  Timer judge_;                    // running from a collection of its own to its judgement

  Timer compare_;         // running likewise: time of the next collection while the job moves
  Timer compare_others_;  // running from that until the others' evidence has come
  absl::Duration compare_after_;
  std::map<int32_t, Node> compared_;               // collectives by group rank, for the next comparison
  std::map<int32_t, std::deque<int64_t>> clocks_;  // microseconds from a node's clock to this one, the last few
  std::optional<Mismatch> mismatch_;               // found by the last comparison
  bool mismatch_reported_ = false;
  std::vector<int32_t> stragglers_;  // likewise; empty: none
  std::vector<int32_t> reported_stragglers_;

  // The present pause of the job.
  std::optional<Verdict> last_;           // the judgement before
  std::optional<SteadyTime> idle_since_;  // time from which its odd ranks have been idle
  std::optional<Verdict> reported_;
  bool without_stacks_ = false;  // reported_ was found by FindDifference
  SteadyTime reported_since_;
  bool replaced_ = false;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HANG_HANG_WATCH_H_
