#ifndef DDPRUN_LAUNCHER_PROGRESS_TERMINAL_LINE_H_
#define DDPRUN_LAUNCHER_PROGRESS_TERMINAL_LINE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// The launcher's line at the bottom of the terminal on standard error. There is one at a time, in one of two places:
// in the cursor's row, while only the launcher writes to the terminal, or in the terminal's last row, which is excluded
// from the scrolling region, so that workers may write to the terminal at any time. Does nothing if standard error is
// not a terminal. Thread-compatible.
class TerminalLine {
 public:
  TerminalLine();
  ~TerminalLine();
  TerminalLine(const TerminalLine&) = delete;
  TerminalLine& operator=(const TerminalLine&) = delete;

  // True if the terminal supports a reserved row and this process is in its foreground.
  bool CanReserveRow() const;

  // Shows the line in the cursor's row, cut to the terminal's width; empty text removes it.
  void ShowAtCursor(absl::string_view text);

  // Shows the line in the reserved row, cut to the terminal's width. No effect on a terminal that is too small.
  // REQUIRES: CanReserveRow().
  void ShowInReservedRow(absl::string_view text);

  // Removes the line from the reserved row, and returns that to the scrolling region.
  void ReleaseRow();

  // Hides a line in the cursor's row while other output is printed to the terminal.
  template <typename Print>
  void Around(Print print) {
    const std::string text = at_cursor_;
    if (!text.empty()) ShowAtCursor("");
    print();
    if (!text.empty()) ShowAtCursor(text);
  }

 private:
  const bool terminal_;
  std::string at_cursor_;  // text in the cursor's row; empty: none
  int rows_ = 0;           // rows of the terminal when the last one was reserved; 0: not reserved
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_TERMINAL_LINE_H_
