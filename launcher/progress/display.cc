#include "launcher/progress/display.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "launcher/report/wait_text.h"

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kRenewal = absl::Seconds(1);
constexpr absl::Duration kBetweenLines = absl::Seconds(10);
constexpr int kLeastRows = 5;
constexpr int kLeastColumns = 20;
constexpr int kDefaultColumns = 80;

// Escape sequences that all VT100-compatible terminals support (ECMA-48, DECSTBM, DECSC, DECRC).
constexpr char kSaveCursor[] = "\0337";
constexpr char kRestoreCursor[] = "\0338";
constexpr char kCursorUp[] = "\033[A";
constexpr char kEraseLine[] = "\033[K";

// Limits scrolling to the rows up to `row`. Moves the cursor.
std::string ScrollUpTo(int row) { return absl::StrCat("\033[1;", row, "r"); }
std::string CursorToRow(int row) { return absl::StrCat("\033[", row, ";1H"); }

// Size of the terminal; zeros if it is unknown.
winsize Size() {
  winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size : winsize();
}

// A wrapped line could not be erased.
std::string Fitted(absl::string_view text, int columns) { return FitLine(absl::StrCat("ddprun: ", text), columns - 1); }

}  // namespace

TerminalLine::TerminalLine() : terminal_(isatty(STDERR_FILENO) == 1) {}

TerminalLine::~TerminalLine() {
  ShowAtCursor("");
  ReleaseRow();
}

bool TerminalLine::CanReserveRow() const {
  const char* const kind = getenv("TERM");
  return terminal_ && kind != nullptr && *kind != '\0' && absl::string_view(kind) != "dumb" &&
         tcgetpgrp(STDERR_FILENO) == getpgrp();
}

void TerminalLine::ShowAtCursor(absl::string_view text) {
  if (!terminal_ || text == at_cursor_) return;
  if (!text.empty()) ReleaseRow();
  at_cursor_ = std::string(text);
  const int columns = Size().ws_col;
  LogVerbatim(absl::StrCat(
      "\r", kEraseLine,
      text.empty() ? "" : Fitted(text, std::max(columns == 0 ? kDefaultColumns : columns, kLeastColumns))));
}

void TerminalLine::ShowInReservedRow(absl::string_view text) {
  ShowAtCursor("");
  const winsize size = Size();
  if (size.ws_row < kLeastRows || size.ws_col < kLeastColumns) return ReleaseRow();
  std::string output;
  if (rows_ != size.ws_row) {
    // The newline makes room if the cursor is in the last row.
    absl::StrAppend(&output, "\n", kSaveCursor, ScrollUpTo(size.ws_row - 1), kRestoreCursor, kCursorUp);
    rows_ = size.ws_row;
  }
  absl::StrAppend(&output, kSaveCursor, CursorToRow(rows_), kEraseLine, Fitted(text, size.ws_col), kRestoreCursor);
  LogVerbatim(output);
}

void TerminalLine::ReleaseRow() {
  if (rows_ == 0) return;
  LogVerbatim(absl::StrCat(kSaveCursor, ScrollUpTo(rows_), CursorToRow(rows_), kEraseLine, kRestoreCursor));
  rows_ = 0;
}

ProgressDisplay::ProgressDisplay(ProgressMode mode, TerminalLine* line) : where_(WhereFor(mode, *line)), line_(line) {}

ProgressDisplay::Where ProgressDisplay::WhereFor(ProgressMode mode, const TerminalLine& line) {
  if (mode == ProgressMode::kOff) return Where::kNowhere;
  if (line.CanReserveRow()) return Where::kReservedRow;
  return mode == ProgressMode::kOn ? Where::kLog : Where::kNowhere;
}

void ProgressDisplay::Start(SteadyTime at) {
  if (where_ != Where::kNowhere && next_ == SteadyTime::InfiniteFuture()) next_ = at + kRenewal;
}

void ProgressDisplay::Show(const std::string& text, SteadyTime now) {
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
