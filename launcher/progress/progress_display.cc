#include "launcher/progress/progress_display.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kRenewal = absl::Seconds(1);
constexpr absl::Duration kBetweenLines = absl::Seconds(10);

}  // namespace

ProgressDisplay::ProgressDisplay(ProgressMode mode, std::function<bool()> workers_running)
    : where_(WhereFor(mode)), at_work_(std::move(workers_running)) {}

ProgressDisplay::Where ProgressDisplay::WhereFor(ProgressMode mode) {
  if (mode == ProgressMode::kOff) return Where::kNowhere;
  if (BottomLine::Possible()) return Where::kBottomLine;
  return mode == ProgressMode::kOn ? Where::kLog : Where::kNowhere;
}

void ProgressDisplay::BeginRound(const rendezvous::Assignment& assignment, int32_t slots) {
  if (assignment.round == round_) return;
  round_ = assignment.round;
  summary_.StartRound(assignment, slots);
}

void ProgressDisplay::OnProgress(int32_t local_rank, const ReportedProgress& progress) {
  if (where_ == Where::kNowhere) return;
  summary_.OnProgress(local_rank, progress.progress, progress.at);
  if (next_ == SteadyTime::InfiniteFuture()) next_ = progress.at + kRenewal;
}

void ProgressDisplay::OnDeadline(SteadyTime now) {
  const std::string text = at_work_() ? summary_.Text(now) : "";
  if (text.empty()) return Hide();
  if (where_ == Where::kBottomLine) {
    line_.Show(text);
    next_ = now + kRenewal;
  } else {
    LogVerbatim(absl::StrCat("ddprun: ", text, "\n"));
    next_ = now + kBetweenLines;
  }
}

void ProgressDisplay::Hide() {
  line_.Hide();
  next_ = SteadyTime::InfiniteFuture();
}

}  // namespace ddprun::launcher
