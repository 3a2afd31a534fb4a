#include "launcher/progress/progress_summary.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/text.h"
#include "launcher/report/duration_text.h"

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kWindow = absl::Seconds(10);
constexpr absl::Duration kBetweenSamples = absl::Milliseconds(200);
constexpr size_t kLeastSamples = 3;  // even if steps take longer than the window
constexpr absl::Duration kStandsStill = absl::Seconds(1);

bool Counts(const ProgressBoard::Rank& rank) { return rank.last && !rank.ended; }

int64_t StepOf(const ProgressBoard::Rank& rank) { return rank.last->progress.step; }

std::string PhaseText(const ProgressBoard::Rank& rank) {
  return OneLine(rank.last->progress.phase, worker_contract::kMaxPhaseBytes);
}

}  // namespace

void ProgressSummary::OnRound() {
  samples_.clear();
  furthest_ = -1;
}

void ProgressSummary::OnProgress(int32_t local_rank) {
  const ReportedProgress& last = *board_->ranks()[local_rank].last;
  if (last.progress.step <= furthest_) return;
  furthest_ = last.progress.step;
  if (!samples_.empty() && last.at - samples_.back().at < kBetweenSamples) return;
  samples_.push_back({last.at, furthest_});
  while (samples_.size() > kLeastSamples && last.at - samples_.front().at > kWindow) samples_.pop_front();
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
  const std::vector<ProgressBoard::Rank>& ranks = board_->ranks();
  const ProgressBoard::Rank* slowest = nullptr;
  int counted = 0;
  for (const ProgressBoard::Rank& rank : ranks) {
    if (!Counts(rank)) continue;
    ++counted;
    if (slowest == nullptr || StepOf(rank) < StepOf(*slowest) ||
        (StepOf(rank) == StepOf(*slowest) && rank.moved < slowest->moved)) {
      slowest = &rank;
    }
  }
  if (counted < 2 || (StepOf(*slowest) == furthest_ && now - slowest->moved < kStandsStill)) return "";
  const std::string phase = PhaseText(*slowest);
  return absl::StrCat("; slowest rank ", board_->base_rank() + (slowest - ranks.data()), " (step ", StepOf(*slowest),
                      ", ", phase.empty() ? "" : absl::StrCat(phase, " "), "for ", ElapsedText(now - slowest->moved),
                      ")");
}

std::string ProgressSummary::Text(SteadyTime now) const {
  for (const ProgressBoard::Rank& rank : board_->ranks()) {
    if (!Counts(rank)) continue;
    std::string text = absl::StrCat("step ", StepOf(rank), SpeedText(now));
    if (rank.loss) absl::StrAppendFormat(&text, ", loss %.4g", *rank.loss);
    const std::string phase = PhaseText(rank);
    if (!phase.empty()) absl::StrAppend(&text, ", phase ", phase);
    absl::StrAppend(&text, SlowestText(now));
    const int32_t restarts = board_->restart_count();
    if (restarts > 0) absl::StrAppend(&text, "; ", Counted(restarts, "restart"));
    return text;
  }
  return "";
}

}  // namespace ddprun::launcher
