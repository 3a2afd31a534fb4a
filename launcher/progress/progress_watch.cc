#include "launcher/progress/progress_watch.h"

#include <algorithm>
#include <utility>

namespace ddprun::launcher {
namespace {

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

}  // namespace

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
  told_.clear();
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
  Place(now);
}

void ProgressWatch::Leave(int32_t local_rank, SteadyTime now, ProgressEffects* effects) {
  const Rank& rank = ranks_[local_rank];
  if (Contains(told_, local_rank)) {
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

void ProgressWatch::Place(SteadyTime now) {
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
    const Position position(rank.pass, rank.step, entered);
    if (behind.empty() || position < least) {
      behind.clear();
      least = position;
    }
    if (position == least) behind.push_back(local_rank);
  }
  // The rank was ahead so far and was waiting for the others, which have caught up.
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
  if (Contains(told_, local_rank)) ForgetHang();
  Place(now);
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
  told_ = behind_;
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

}  // namespace ddprun::launcher
