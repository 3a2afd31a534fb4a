#include "launcher/progress/progress_watch.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/text.h"
#include "launcher/report/wait_text.h"

namespace ddprun::launcher {
namespace {

constexpr double kGrowth = 1.125;

// Further names share one entry, because a worker might use a new name each time.
constexpr size_t kMostPhases = 64;
constexpr absl::Duration kFirstRepetition = absl::Minutes(1);
constexpr absl::Duration kLongestInterval = absl::Minutes(30);
constexpr absl::Duration kStragglerInterval = absl::Minutes(1);
constexpr double kPercentile = 0.99;
constexpr double kTimesTheLongest = 2;

bool Contains(const LocalRanks& ranks, int32_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// Returns the median; of an even number, the lower of the two middle values: of two ranks, the faster one's.
absl::Duration Median(std::vector<absl::Duration> durations) {
  const auto middle = durations.begin() + (durations.size() - 1) / 2;
  std::nth_element(durations.begin(), middle, durations.end());
  return *middle;
}

struct Verb {
  const char* one;
  const char* several;
};

std::string RanksHave(const LocalRanks& local_ranks, int32_t base_rank, Verb verb) {
  return absl::StrCat(RanksText(local_ranks, base_rank), " ", local_ranks.size() == 1 ? verb.one : verb.several);
}

LocalRanks RanksOf(const std::vector<WorkerStanding>& standings) {
  LocalRanks ranks;
  for (const WorkerStanding& standing : standings) ranks.push_back(standing.local_rank);
  return ranks;
}

// "(usually 300ms, limit 1s)"
std::string LimitText(const WorkerStanding& standing) {
  const std::string usual =
      standing.usual > absl::ZeroDuration() ? absl::StrCat("usually ", ElapsedText(standing.usual), ", ") : "";
  return absl::StrCat("(", usual, "limit ", ElapsedText(standing.limit), ")");
}

}  // namespace

void DurationHistogram::Add(absl::Duration duration) {
  const double milliseconds = std::max(1.0, absl::ToDoubleMilliseconds(duration));
  const double bucket = std::ceil(std::log(milliseconds) / std::log(kGrowth));
  ++buckets_[static_cast<int>(std::clamp(bucket, 0.0, kBuckets - 1.0))];
  if (++count_ < kFadeAt) return;
  count_ = 0;
  for (int32_t& count : buckets_) count_ += count /= 2;
}

absl::Duration DurationHistogram::Percentile(double share) const {
  if (count_ == 0) return absl::ZeroDuration();
  int64_t left = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(share * static_cast<double>(count_))), 1, count_);
  int bucket = 0;
  while ((left -= buckets_[bucket]) > 0) ++bucket;
  return absl::Milliseconds(std::pow(kGrowth, bucket));
}

bool IsSynchronizing(absl::string_view phase) {
  const std::string name = absl::AsciiStrToLower(phase);
  for (const char* word : {"backward", "reduce", "barrier", "wait", "sync"}) {
    if (absl::StrContains(name, word)) return true;
  }
  return false;
}

void StragglerWatch::OnPhase(int32_t local_rank, absl::string_view phase, absl::Duration duration) {
  Rank& rank = ranks_[local_rank];
  rank.step += duration;
  rank.synchronized = rank.synchronized || IsSynchronizing(phase);
  if (!rank.synchronized) rank.own += duration;
}

std::vector<Straggler> StragglerWatch::OnStep(int32_t local_rank, bool counts, const std::vector<int32_t>& ranks) {
  Rank& rank = ranks_[local_rank];
  // Without a synchronizing phase it is unknown which part of the step is waiting.
  if (counts && rank.synchronized) {
    if (rank.owns.size() == kSteps) {
      rank.owns.erase(rank.owns.begin());
      rank.steps.erase(rank.steps.begin());
    }
    rank.owns.push_back(rank.own);
    rank.steps.push_back(rank.step);
  }
  rank.own = rank.step = absl::ZeroDuration();
  rank.synchronized = false;
  const auto complete = [&](int32_t other) { return ranks_[other].owns.size() == kSteps; };
  if (ranks.size() < 2 || !std::all_of(ranks.begin(), ranks.end(), complete)) return {};
  return Compare(ranks);
}

std::vector<Straggler> StragglerWatch::Compare(const std::vector<int32_t>& ranks) {
  std::vector<absl::Duration> owns;
  std::vector<absl::Duration> steps;
  for (const int32_t rank : ranks) {
    owns.push_back(Median(ranks_[rank].owns));
    steps.push_back(Median(ranks_[rank].steps));
    ranks_[rank].owns.clear();
    ranks_[rank].steps.clear();
  }
  const absl::Duration others = Median(owns);
  const absl::Duration least = kLeastShareOfStep * Median(steps);
  std::vector<Straggler> stragglers;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (owns[i] < kRatio * others || owns[i] - others < least || others <= absl::ZeroDuration()) continue;
    stragglers.push_back({ranks[i], owns[i], others});
  }
  std::sort(stragglers.begin(), stragglers.end(), [](const auto& a, const auto& b) { return a.own > b.own; });
  return stragglers;
}

void ProgressWatch::StartRound(int32_t slots, bool other_nodes) {
  EndRound();
  in_round_ = true;
  other_nodes_ = other_nodes;
  ranks_.assign(slots, Rank());
  phases_.clear();
  stragglers_ = StragglerWatch(slots);
}

void ProgressWatch::EndRound() {
  in_round_ = false;
  running_.clear();
  behind_.clear();
  ForgetHang();
}

void ProgressWatch::ForgetHang() {
  hung_.clear();
  repeat_report_.Clear();
}

size_t ProgressWatch::PhaseOf(const std::string& name) {
  for (size_t i = 0; i < phases_.size(); ++i) {
    if (phases_[i].name == name || i == kMostPhases) return i;
  }
  phases_.push_back({name, {}, std::vector<int>(ranks_.size()), std::vector<bool>(ranks_.size())});
  return phases_.size() - 1;
}

void ProgressWatch::OnProgress(int32_t local_rank, const worker_contract::LinkProgress& progress, SteadyTime now,
                               ProgressEffects* effects) {
  if (!in_round_ || !Exists(local_rank) || ranks_[local_rank].ended) return;
  Stalled(now);
  if (Training()) trained_at_ = now;
  Rank& rank = ranks_[local_rank];
  const bool new_step = !rank.reported || rank.step != progress.step;
  if (rank.reported) Leave(local_rank, now, effects);
  if (rank.reported && new_step) LeaveStep(local_rank, now, effects);
  const size_t phase = PhaseOf(progress.phase);
  if (new_step) {
    // The step number was reset, such as in a new epoch.
    if (progress.step < rank.step) ++rank.pass;
    ++rank.steps;
    rank.entered.clear();
  }
  rank.entered.resize(phases_.size());
  if (new_step || phase != rank.phase) ++rank.entered[phase];
  rank.reported = rank.measured = true;
  rank.overdue = false;
  rank.step = progress.step;
  rank.phase = phase;
  rank.since = rank.own_since = now;
  phases_[phase].reported[local_rank] = true;
  if (Contains(behind_, local_rank)) moved_at_ = now;
  UpdatePositions(now);
}

void ProgressWatch::Leave(int32_t local_rank, SteadyTime now, ProgressEffects* effects) {
  const Rank& rank = ranks_[local_rank];
  if (Contains(hung_, local_rank)) {
    effects->emplace_back(effect::HangEnded{StandingOf(local_rank, now)});
    ForgetHang();
  }
  if (!rank.measured) return;
  Phase& phase = phases_[rank.phase];
  stragglers_.OnPhase(local_rank, phase.name, now - rank.since);
  if (rank.steps > kWarmUpSteps && rank.phase < kMostPhases) Learn(&phase, local_rank, now - rank.own_since);
}

void ProgressWatch::Learn(Phase* phase, int32_t local_rank, absl::Duration duration) const {
  phase->durations.Add(duration);
  const bool known = ++phase->times[local_rank] >= kLeastTimes || phase->limit < absl::InfiniteDuration();
  if (!known) return;
  phase->limit = std::max({settings_.least, settings_.factor * phase->durations.Percentile(kPercentile),
                           kTimesTheLongest * phase->durations.Largest()});
}

void ProgressWatch::LeaveStep(int32_t local_rank, SteadyTime now, ProgressEffects* effects) {
  std::vector<Straggler> slow = stragglers_.OnStep(local_rank, ranks_[local_rank].steps > kWarmUpSteps, running_);
  if (slow.empty() || now < next_stragglers_) return;
  next_stragglers_ = now + kStragglerInterval;
  effects->emplace_back(effect::Stragglers{std::move(slow)});
}

void ProgressWatch::UpdatePositions(SteadyTime now) {
  running_.clear();
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].reported && !ranks_[i].ended && !Finished(ranks_[i])) running_.push_back(static_cast<int32_t>(i));
  }
  std::vector<bool> common(phases_.size());
  for (size_t phase = 0; phase < phases_.size(); ++phase) {
    common[phase] = std::all_of(running_.begin(), running_.end(), [&](int32_t r) {
      // In its first step a rank has not entered all of its phases yet.
      return ranks_[r].steps < 2 || phases_[phase].reported[r];
    });
  }
  LocalRanks behind;
  Position least;
  for (const int32_t local_rank : running_) {
    const Rank& rank = ranks_[local_rank];
    int64_t entered = 0;
    for (size_t phase = 0; phase < rank.entered.size(); ++phase) entered += common[phase] ? rank.entered[phase] : 0;
    const bool waits = !common[rank.phase] && IsSynchronizing(phases_[rank.phase].name);
    const Position position(rank.pass, rank.step, entered, waits);
    if (behind.empty() || position < least) {
      behind.clear();
      least = position;
    }
    if (position == least) behind.push_back(local_rank);
  }
  // The rank was ahead and waited for the others, which have caught up.
  for (const int32_t local_rank : behind) {
    if (!Contains(behind_, local_rank)) ranks_[local_rank].own_since = now;
  }
  behind_ = std::move(behind);
}

void ProgressWatch::OnEnded(int32_t local_rank, SteadyTime now) {
  if (!in_round_ || !Exists(local_rank)) return;
  if (Training()) trained_at_ = now;
  ranks_[local_rank].ended = true;
  moved_at_ = now;
  if (Contains(hung_, local_rank)) ForgetHang();
  UpdatePositions(now);
}

bool ProgressWatch::Stalled(SteadyTime now) {
  if (now <= NextDeadline() + kStall) return false;
  for (Rank& rank : ranks_) {
    rank.measured = false;
    if (rank.reported && Finished(rank)) rank.since = now;
  }
  moved_at_ = now;
  return true;
}

bool ProgressWatch::MayWaitForOtherNode() const {
  if (!other_nodes_ || behind_.size() != running_.size()) return false;
  return std::all_of(behind_.begin(), behind_.end(), [&](int32_t r) {
    const std::string& phase = phases_[ranks_[r].phase].name;
    return phase.empty() || IsSynchronizing(phase) || phase == worker_contract::kEvaluationPhase;
  });
}

absl::Duration ProgressWatch::Limit(const Rank& rank) const {
  const bool elsewhere = MayWaitForOtherNode();
  if (settings_.fixed_limit > absl::ZeroDuration()) return (elsewhere ? 2 : 1) * settings_.fixed_limit;
  if (rank.steps <= kWarmUpSteps) return absl::InfiniteDuration();
  const absl::Duration limit = phases_[rank.phase].limit;
  return elsewhere ? std::max(2 * limit, kElsewhere) : limit;
}

SteadyTime ProgressWatch::HangsAt() const {
  if (behind_.empty()) return SteadyTime::InfiniteFuture();
  SteadyTime at = SteadyTime::InfinitePast();
  for (const int32_t local_rank : behind_) {
    const Rank& rank = ranks_[local_rank];
    at = std::max(at, std::max(rank.own_since, moved_at_) + Limit(rank));
  }
  return at;
}

SteadyTime ProgressWatch::HangDeadline() const { return repeat_report_.running() ? repeat_report_.at() : HangsAt(); }

absl::Duration ProgressWatch::ExitLimit() const {
  return settings_.fixed_limit > absl::ZeroDuration() ? settings_.fixed_limit : kExit;
}

bool ProgressWatch::Training() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [&](const Rank& rank) { return !rank.ended && !(rank.reported && Finished(rank)); });
}

SteadyTime ProgressWatch::ExitDeadline(const Rank& rank) const {
  if (!rank.reported || rank.ended || !Finished(rank)) return SteadyTime::InfiniteFuture();
  if (!rank.overdue) return rank.since + ExitLimit();
  const bool exiting = phases_[rank.phase].name == worker_contract::kExitingPhase;
  if (!exiting || Training()) return SteadyTime::InfiniteFuture();
  return std::max(rank.since, trained_at_) + 2 * ExitLimit();
}

SteadyTime ProgressWatch::NextDeadline() const {
  SteadyTime next = HangDeadline();
  if (!in_round_) return next;
  for (const Rank& rank : ranks_) next = std::min(next, ExitDeadline(rank));
  return next;
}

WorkerStanding ProgressWatch::StandingOf(int32_t local_rank, SteadyTime now) const {
  const Rank& rank = ranks_[local_rank];
  const Phase& phase = phases_[rank.phase];
  return {local_rank, rank.step, phase.name, now - rank.since, phase.durations.Percentile(0.5), Limit(rank)};
}

void ProgressWatch::OnExitDeadlines(SteadyTime now, ProgressEffects* effects) {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    if (now < ExitDeadline(rank)) continue;
    const bool kill = std::exchange(rank.overdue, true);
    effects->emplace_back(
        effect::NotExited{static_cast<int32_t>(i), now - rank.since, ExitDeadline(rank) - rank.since, kill});
    if (kill) rank.since = now;
  }
}

void ProgressWatch::OnDeadline(SteadyTime now, ProgressEffects* effects) {
  if (!in_round_ || now < NextDeadline() || Stalled(now)) return;
  OnExitDeadlines(now, effects);
  if (now < HangDeadline()) return;
  const bool again = repeat_report_.Take(now);
  repeat_interval_ = again ? std::min(2 * repeat_interval_, kLongestInterval) : kFirstRepetition;
  repeat_report_.Set(now + repeat_interval_);
  hung_ = behind_;
  effect::Hang hang;
  hang.elsewhere = MayWaitForOtherNode();
  hang.again = again;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const auto local_rank = static_cast<int32_t>(i);
    if (ranks_[i].ended) {
      hang.ended.push_back(local_rank);
    } else if (ranks_[i].reported && Finished(ranks_[i])) {
      hang.finished.push_back(local_rank);
    } else if (!ranks_[i].reported) {
      hang.silent.push_back(local_rank);
    } else {
      (Contains(behind_, local_rank) ? hang.behind : hang.waiting).push_back(StandingOf(local_rank, now));
    }
  }
  effects->push_back(std::move(hang));
}

std::string StandingText(const WorkerStanding& standing) {
  const std::string phase = OneLine(standing.phase, worker_contract::kMaxPhaseBytes);
  return absl::StrCat(phase.empty() ? "" : absl::StrCat("phase ", phase, " of "), "step ", standing.step);
}

std::string HangText(const effect::Hang& hang, int32_t base_rank) {
  // The last rank to arrive determines how long all of them have been there.
  const WorkerStanding& last = *std::min_element(hang.behind.begin(), hang.behind.end(),
                                                 [](const auto& a, const auto& b) { return a.stood < b.stood; });
  std::string text = absl::StrCat(RanksHave(RanksOf(hang.behind), base_rank, {"has been in", "have been in"}), " ",
                                  StandingText(last), " for ", ElapsedText(last.stood), " ", LimitText(last));
  const bool alone = hang.behind.size() == 1;
  if (hang.elsewhere) {
    absl::StrAppend(&text, ": ", alone ? "it may wait" : "they wait for each other or",
                    " for another node (see its launcher's log)");
  } else if (!alone && hang.waiting.empty()) {
    absl::StrAppend(&text, ": all ranks of this node that report their progress");
  }
  std::map<std::string, LocalRanks> waiting;
  for (const WorkerStanding& standing : hang.waiting) waiting[StandingText(standing)].push_back(standing.local_rank);
  for (const auto& [where, ranks] : waiting) {
    absl::StrAppend(&text, "; ", RanksHave(ranks, base_rank, {"waits in", "wait in"}), " ", where);
  }
  if (!hang.silent.empty()) {
    absl::StrAppend(&text, "; ", RanksHave(hang.silent, base_rank, {"has", "have"}), " not reported any progress");
  }
  if (!hang.finished.empty()) {
    absl::StrAppend(&text, "; ", RanksHave(hang.finished, base_rank, {"has", "have"}), " finished the training");
  }
  if (!hang.ended.empty()) absl::StrAppend(&text, "; ", RanksHave(hang.ended, base_rank, {"has", "have"}), " ended");
  return text;
}

std::string HangFailureText(const WorkerStanding& standing) {
  return absl::StrCat("hung in ", StandingText(standing), " for ", ElapsedText(standing.stood), " ",
                      LimitText(standing), "; killed (--on-hang=restart)");
}

std::string HangEndedText(const effect::HangEnded& hang, int32_t base_rank) {
  return absl::StrCat("rank ", base_rank + hang.stood.local_rank, " continued after ", ElapsedText(hang.stood.stood),
                      " in ", StandingText(hang.stood));
}

std::string NotExitedText(const effect::NotExited& not_exited, int32_t base_rank, int64_t pid) {
  const bool exiting = not_exited.killed_after < absl::InfiniteDuration();
  std::string text = absl::StrCat("rank ", base_rank + not_exited.local_rank, " (pid ", pid, ") has ",
                                  exiting ? "run to the end of its program" : "finished its training",
                                  " and has not exited for ", ElapsedText(not_exited.stood));
  if (not_exited.kill) return absl::StrCat(text, ": killed; it counts as finished");
  if (!exiting) return text;
  return absl::StrCat(text, "; it counts as finished, and is killed after ", ElapsedText(not_exited.killed_after),
                      " if it is idle");
}

std::string StragglersText(const effect::Stragglers& stragglers, int32_t base_rank) {
  return absl::StrJoin(stragglers.ranks, "; ", [&](std::string* out, const Straggler& slow) {
    absl::StrAppendFormat(out,
                          "rank %d is slow: it computes %s of a step before the ranks wait for each other, %.1f times "
                          "the median of this node's ranks (%s)",
                          base_rank + slow.local_rank, ElapsedText(slow.own), slow.ratio(), ElapsedText(slow.others));
  });
}

}  // namespace ddprun::launcher
