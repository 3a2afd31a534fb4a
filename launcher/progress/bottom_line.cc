#include "launcher/progress/bottom_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "launcher/report/wait_text.h"

namespace ddprun::launcher {
namespace {

constexpr int kLeastRows = 5;
constexpr int kLeastColumns = 20;

// Escape sequences that all VT100-compatible terminals support (ECMA-48, DECSTBM, DECSC, DECRC).
constexpr char kSaveCursor[] = "\0337";
constexpr char kRestoreCursor[] = "\0338";
constexpr char kCursorUp[] = "\033[A";
constexpr char kEraseLine[] = "\033[K";

// Limits scrolling to the rows up to `row`. Moves the cursor.
std::string ScrollUpTo(int row) { return absl::StrCat("\033[1;", row, "r"); }
std::string CursorToRow(int row) { return absl::StrCat("\033[", row, ";1H"); }

}  // namespace

bool BottomLine::Possible() {
  const char* const kind = getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && kind != nullptr && *kind != '\0' && absl::string_view(kind) != "dumb" &&
         tcgetpgrp(STDERR_FILENO) == getpgrp();
}

void BottomLine::Show(absl::string_view text) {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < kLeastRows || size.ws_col < kLeastColumns) {
    return Hide();
  }
  std::string output;
  if (rows_ != size.ws_row) {
    // The newline makes room if the cursor is in the last row.
    absl::StrAppend(&output, "\n", kSaveCursor, ScrollUpTo(size.ws_row - 1), kRestoreCursor, kCursorUp);
    rows_ = size.ws_row;
  }
  absl::StrAppend(&output, kSaveCursor, CursorToRow(rows_), kEraseLine,
                  FitLine(absl::StrCat("ddprun: ", text), size.ws_col - 1), kRestoreCursor);
  LogVerbatim(output);
}

void BottomLine::Hide() {
  if (rows_ == 0) return;
  LogVerbatim(absl::StrCat(kSaveCursor, ScrollUpTo(rows_), CursorToRow(rows_), kEraseLine, kRestoreCursor));
  rows_ = 0;
}

}  // namespace ddprun::launcher
