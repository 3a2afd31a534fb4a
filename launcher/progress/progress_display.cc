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

ProgressDisplay::ProgressDisplay(ProgressMode mode, const ProgressBoard* board, TerminalLine* line,
                                 std::function<bool()> workers_running)
    : where_(WhereFor(mode, *line)), at_work_(std::move(workers_running)), line_(line), summary_(board) {}

ProgressDisplay::Where ProgressDisplay::WhereFor(ProgressMode mode, const TerminalLine& line) {
  if (mode == ProgressMode::kOff) return Where::kNowhere;
  if (line.CanReserveRow()) return Where::kReservedRow;
  return mode == ProgressMode::kOn ? Where::kLog : Where::kNowhere;
}

void ProgressDisplay::OnProgress(int32_t local_rank, SteadyTime at) {
  if (where_ == Where::kNowhere) return;
  summary_.OnProgress(local_rank);
  if (next_ == SteadyTime::InfiniteFuture()) next_ = at + kRenewal;
}

void ProgressDisplay::OnDeadline(SteadyTime now) {
  const std::string text = at_work_() ? summary_.Text(now) : "";
  if (text.empty()) return Hide();
  if (where_ == Where::kReservedRow) {
    line_->ShowInReservedRow(text);
    next_ = now + kRenewal;
  } else {
    LogVerbatim(absl::StrCat("ddprun: ", text, "\n"));
    next_ = now + kBetweenLines;
  }
}

void ProgressDisplay::Hide() {
  line_->ReleaseRow();
  next_ = SteadyTime::InfiniteFuture();
}

}  // namespace ddprun::launcher
