#include "launcher/progress/progress.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/text.h"
#include "launcher/report/wait_text.h"

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kSpeedWindow = absl::Seconds(10);
constexpr absl::Duration kBetweenReached = absl::Milliseconds(200);
constexpr size_t kLeastReached = 3;  // even if steps take longer than the window
constexpr absl::Duration kStandsStill = absl::Seconds(1);

bool IsTraining(const ProgressBoard::Rank& rank) { return rank.last && !rank.ended; }

int64_t StepOf(const ProgressBoard::Rank& rank) { return rank.last->progress.step; }

std::string PhaseText(const ProgressBoard::Rank& rank) {
  return OneLine(rank.last->progress.phase, worker_contract::kMaxPhaseBytes);
}

std::string SpeedText(const ProgressBoard& board, SteadyTime now) {
  if (board.reached().empty() || board.furthest_step() == board.reached().front().step) return "";
  const double seconds = absl::ToDoubleSeconds(now - board.reached().front().at);
  if (seconds < absl::ToDoubleSeconds(kBetweenReached)) return "";
  const double speed = static_cast<double>(board.furthest_step() - board.reached().front().step) / seconds;
  if (speed >= 100) return absl::StrFormat(", %.0f steps/s", speed);
  if (speed >= 1) return absl::StrFormat(", %.2f steps/s", speed);
  return absl::StrFormat(", %.1f s/step", 1 / speed);
}

std::string SlowestText(const ProgressBoard& board, SteadyTime now) {
  const std::vector<ProgressBoard::Rank>& ranks = board.ranks();
  const ProgressBoard::Rank* slowest = nullptr;
  int counted = 0;
  for (const ProgressBoard::Rank& rank : ranks) {
    if (!IsTraining(rank)) continue;
    ++counted;
    if (slowest == nullptr || StepOf(rank) < StepOf(*slowest) ||
        (StepOf(rank) == StepOf(*slowest) && rank.moved < slowest->moved)) {
      slowest = &rank;
    }
  }
  if (counted < 2 || (StepOf(*slowest) == board.furthest_step() && now - slowest->moved < kStandsStill)) return "";
  const std::string phase = PhaseText(*slowest);
  return absl::StrCat("; slowest rank ", board.base_rank() + (slowest - ranks.data()), " (step ", StepOf(*slowest),
                      ", ", phase.empty() ? "" : absl::StrCat(phase, " "), "for ", ElapsedText(now - slowest->moved),
                      ")");
}

}  // namespace

bool ProgressBoard::BeginRound(const rendezvous::Assignment& assignment, int32_t slots) {
  if (assignment.round() == round_) return false;
  *this = ProgressBoard();
  round_ = assignment.round();
  base_rank_ = assignment.base_rank();
  restart_count_ = assignment.restart_count();
  other_nodes_ = assignment.group_world_size() > 1;
  ranks_.resize(slots);
  return true;
}

bool ProgressBoard::OnProgress(int32_t local_rank, const ReportedProgress& report) {
  if (!Exists(local_rank)) return false;
  Rank& rank = ranks_[local_rank];
  const bool moved = !rank.last || rank.last->progress.step != report.progress.step ||
                     rank.last->progress.phase != report.progress.phase;
  if (moved) rank.moved = report.at;
  if (report.progress.loss) {
    rank.loss = report.progress.loss;
    ++rank.losses;
  }
  rank.last = report;
  ++rank.reports;
  ++reports_;
  if (report.progress.step <= furthest_step_) return true;
  furthest_step_ = report.progress.step;
  if (!reached_.empty() && report.at - reached_.back().at < kBetweenReached) return true;
  reached_.push_back({report.at, furthest_step_});
  while (reached_.size() > kLeastReached && report.at - reached_.front().at > kSpeedWindow) reached_.pop_front();
  return true;
}

bool ProgressBoard::OnEnded(int32_t local_rank) {
  if (!Exists(local_rank)) return false;
  ranks_[local_rank].ended = true;
  return true;
}

std::string ProgressSummary(const ProgressBoard& board, SteadyTime now) {
  for (const ProgressBoard::Rank& rank : board.ranks()) {
    if (!IsTraining(rank)) continue;
    std::string text = absl::StrCat("step ", StepOf(rank), SpeedText(board, now));
    if (rank.loss) absl::StrAppendFormat(&text, ", loss %.4g", *rank.loss);
    const std::string phase = PhaseText(rank);
    if (!phase.empty()) absl::StrAppend(&text, ", phase ", phase);
    absl::StrAppend(&text, SlowestText(board, now));
    const int32_t restarts = board.restart_count();
    if (restarts > 0) absl::StrAppend(&text, "; ", Counted(restarts, "restart"));
    return text;
  }
  return "";
}

SteadyTime ProgressReports::NextDeadline() const {
  const int64_t sent = board_->round() == round_ ? sent_reports_ : 0;
  return board_->reports() == sent ? SteadyTime::InfiniteFuture() : not_before_;
}

std::optional<rendezvous::Progress> ProgressReports::Take(SteadyTime now) {
  if (now < NextDeadline()) return std::nullopt;
  not_before_ = now + rendezvous::kProgressInterval;
  if (board_->round() != round_) {
    round_ = board_->round();
    sent_.assign(board_->ranks().size(), Sent());
    sent_reports_ = 0;
  }
  rendezvous::Progress progress;
  progress.set_round(round_);
  for (size_t i = 0; i < sent_.size() && progress.ranks_size() < rendezvous::kMaxRanksInProgress; ++i) {
    const ProgressBoard::Rank& rank = board_->ranks()[i];
    Sent& sent = sent_[i];
    if (rank.reports == sent.reports) continue;
    const worker_contract::LinkProgress& last = rank.last->progress;
    rendezvous::RankProgress* report = progress.add_ranks();
    report->set_local_rank(static_cast<int32_t>(i));
    report->set_step(last.step);
    if (last.samples) report->set_samples(*last.samples);
    report->set_phase(last.phase);
    if (rank.losses > sent.losses) report->set_loss(*rank.loss);
    *report->mutable_ago() = FromDuration(now - rank.last->at);
    sent_reports_ += rank.reports - sent.reports;
    sent = {rank.reports, rank.losses};
  }
  return progress;
}

}  // namespace ddprun::launcher
