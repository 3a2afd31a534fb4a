#include "launcher/progress/progress_summary.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/counted.h"
#include "base/text.h"
#include "launcher/report/duration_text.h"

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kWindow = absl::Seconds(10);
constexpr absl::Duration kBetweenSamples = absl::Milliseconds(200);
constexpr size_t kLeastSamples = 3;  // even if steps take longer than the window
constexpr absl::Duration kStandsStill = absl::Seconds(1);

std::string PhaseText(const worker_contract::LinkProgress& progress) {
  return OneLine(progress.phase, worker_contract::kMaxPhaseBytes);
}

}  // namespace

void ProgressSummary::StartRound(const rendezvous::Assignment& assignment, int32_t slots) {
  base_rank_ = assignment.base_rank;
  restarts_ = assignment.restart_count;
  ranks_.assign(slots, Rank());
  samples_.clear();
  furthest_ = -1;
}

void ProgressSummary::OnProgress(int32_t local_rank, const worker_contract::LinkProgress& progress, SteadyTime now) {
  if (!Exists(local_rank)) return;
  Rank& rank = ranks_[local_rank];
  if (!rank.last || rank.last->step != progress.step || rank.last->phase != progress.phase) rank.moved = now;
  std::optional<double> loss = progress.loss;
  if (!loss && rank.last) loss = rank.last->loss;  // most reports have none
  rank.last = progress;
  rank.last->loss = loss;
  if (progress.step <= furthest_) return;
  furthest_ = progress.step;
  if (!samples_.empty() && now - samples_.back().at < kBetweenSamples) return;
  samples_.push_back({now, progress.step});
  while (samples_.size() > kLeastSamples && now - samples_.front().at > kWindow) samples_.pop_front();
}

void ProgressSummary::OnEnded(int32_t local_rank) {
  if (Exists(local_rank)) ranks_[local_rank].ended = true;
}

std::string ProgressSummary::SpeedText(SteadyTime now) const {
  if (samples_.empty() || furthest_ == samples_.front().step) return "";
  const double seconds = absl::ToDoubleSeconds(now - samples_.front().at);
  if (seconds < absl::ToDoubleSeconds(kBetweenSamples)) return "";
  const double speed = static_cast<double>(furthest_ - samples_.front().step) / seconds;
  if (speed >= 100) return absl::StrFormat(", %.0f steps/s", speed);
  if (speed >= 1) return absl::StrFormat(", %.2f steps/s", speed);
  return absl::StrFormat(", %.1f s/step", 1 / speed);
}

std::string ProgressSummary::SlowestText(SteadyTime now) const {
  const Rank* slowest = nullptr;
  int counted = 0;
  for (const Rank& rank : ranks_) {
    if (!Counts(rank)) continue;
    ++counted;
    if (slowest == nullptr || rank.last->step < slowest->last->step ||
        (rank.last->step == slowest->last->step && rank.moved < slowest->moved)) {
      slowest = &rank;
    }
  }
  if (counted < 2 || (slowest->last->step == furthest_ && now - slowest->moved < kStandsStill)) return "";
  const std::string phase = PhaseText(*slowest->last);
  return absl::StrCat("; slowest rank ", base_rank_ + (slowest - ranks_.data()), " (step ", slowest->last->step, ", ",
                      phase.empty() ? "" : absl::StrCat(phase, " "), "for ", ElapsedText(now - slowest->moved), ")");
}

std::string ProgressSummary::Text(SteadyTime now) const {
  for (const Rank& rank : ranks_) {
    if (!Counts(rank)) continue;
    std::string text = absl::StrCat("step ", rank.last->step, SpeedText(now));
    if (rank.last->loss) absl::StrAppendFormat(&text, ", loss %.4g", *rank.last->loss);
    const std::string phase = PhaseText(*rank.last);
    if (!phase.empty()) absl::StrAppend(&text, ", phase ", phase);
    absl::StrAppend(&text, SlowestText(now));
    if (restarts_ > 0) absl::StrAppend(&text, "; ", Counted(restarts_, "restart"));
    return text;
  }
  return "";
}

}  // namespace ddprun::launcher
