#include "rendezvous/core/verdicts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/command.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/core/phrases.h"

namespace ddprun::rendezvous {
namespace {

// Adds 1 without overflow, since a record or launcher may report any number.
int32_t OneMore(int32_t count) { return std::min(count, kMaxRestarts) + 1; }

}  // namespace

RestartBudget::RestartBudget(const JobSettings& settings)
    : max_(settings.max_restarts()),
      window_(ToDuration(settings.restart_window())),
      backoff_(ToDuration(settings.restart_backoff())),
      max_at_step_(settings.max_failures_at_step()) {}

RestartBudget::Answer RestartBudget::Charge(const WorkerFailure& failure, SteadyTime now) {
  if (IsStuck(failure)) return Answer::kNoProgress;
  const bool has_window = window_ > absl::ZeroDuration();
  while (!in_window_.empty() && in_window_.front() + window_ <= now) in_window_.pop_front();
  if ((has_window ? static_cast<int64_t>(in_window_.size()) : used_) >= max_) return Answer::kSpent;
  used_ = OneMore(used_);
  if (has_window) in_window_.push_back(now);
  series_ = last_ + kSeriesGap < now ? 1 : OneMore(series_);
  last_ = now;
  return Answer::kRestart;
}

bool RestartBudget::IsStuck(const WorkerFailure& failure) {
  const int64_t step = (failure.has_step() ? failure.step() : -1);
  const bool same = step >= 0 && step == step_ && failure.rank() == rank_;
  at_step_ = same ? OneMore(at_step_) : 1;
  rank_ = failure.rank();
  step_ = step;
  return step >= 0 && max_at_step_ > 0 && at_step_ >= max_at_step_;
}

absl::Duration RestartBudget::Backoff() const {
  absl::Duration wait = backoff_;
  if (wait <= absl::ZeroDuration()) return wait;
  for (int32_t i = 1; i < series_ && wait < kMaxBackoff; ++i) wait *= 2;
  return std::min(wait, std::max(backoff_, kMaxBackoff));
}

RestartRecord RestartBudget::Record(SteadyTime now) const {
  RestartRecord record;
  const size_t skipped = in_window_.size() - std::min(in_window_.size(), kMaxRecorded);
  for (size_t i = skipped; i < in_window_.size(); ++i) *record.add_charge_ages() = FromDuration(now - in_window_[i]);
  if (last_ > SteadyTime::InfinitePast()) *record.mutable_last_age() = FromDuration(now - last_);
  record.set_series(series_);
  record.set_last_rank(rank_);
  record.set_last_step(step_);
  record.set_failures_at_step(at_step_);
  return record;
}

void RestartBudget::Restore(const RestartRecord& record, SteadyTime now) {
  in_window_.clear();
  for (const auto& age : record.charge_ages()) in_window_.push_back(now - ToDuration(age));
  last_ = record.has_last_age() ? now - ToDuration(record.last_age()) : SteadyTime::InfinitePast();
  series_ = record.series();
  rank_ = record.last_rank();
  step_ = record.last_step();
  at_step_ = record.failures_at_step();
}

bool RestartBudget::LearnUsed(int32_t used) {
  const int32_t before = used_;
  used_ = std::max(used_, std::min(used, window_ > absl::ZeroDuration() ? kMaxRestarts : max_));
  return used_ > before;
}

std::optional<Verdict> Judge(const WorkerFailure& failure, RestartBudget* budget, SteadyTime now) {
  if (!AllowsRestart(failure)) return Failed(DescribeGivingUp(failure, budget->max(), budget->window()), failure);
  switch (budget->Charge(failure, now)) {
    case RestartBudget::Answer::kRestart: return std::nullopt;
    case RestartBudget::Answer::kSpent: break;
    case RestartBudget::Answer::kNoProgress:
      Verdict verdict = Failed(DescribeNoProgress(failure, budget->failures_at_step()), failure);
      verdict.set_exit_code(kExitNoProgress);
      return verdict;
  }
  return Failed(DescribeGivingUp(failure, budget->max(), budget->window()), failure);
}

Verdict Succeeded(int32_t world_size) {
  const std::string who = world_size == 1 ? "the only worker" : absl::StrCat("all ", world_size, " workers");
  return NewVerdict(true, absl::StrCat(who, " succeeded"), std::nullopt, 0);
}

Verdict Failed(std::string reason, std::optional<WorkerFailure> cause) {
  const int32_t status = cause ? ExitStatus(*cause) : 1;
  return NewVerdict(false, std::move(reason), std::move(cause), status != 0 ? status : 1);
}

Verdict Kicked(absl::string_view actor) {
  Verdict verdict = Failed(absl::StrCat("kicked by ", actor), std::nullopt);
  verdict.set_exit_code(kExitStopped);
  return verdict;
}

Verdict AllLeft(absl::string_view last, const WorkerFailure& loss) {
  return NewVerdict(false, absl::StrCat("all launchers left; last: ", last), loss, 1);
}

}  // namespace ddprun::rendezvous
