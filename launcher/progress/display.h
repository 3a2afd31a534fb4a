#ifndef DDPRUN_LAUNCHER_PROGRESS_DISPLAY_H_
#define DDPRUN_LAUNCHER_PROGRESS_DISPLAY_H_

#include <string>

#include "absl/strings/string_view.h"
#include "base/steady_time.h"
#include "launcher/config/output_settings.h"

// The launcher's output on standard error beside its log: one line at the bottom of the terminal.
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

// Shows training progress (--progress): in the terminal's last row, updated every second, or as a log line every ten
// seconds if standard error is not a terminal. Has no deadline while no worker reports progress. Thread-compatible.
class ProgressDisplay {
 public:
  // `line` outlives the display.
  ProgressDisplay(ProgressMode mode, TerminalLine* line);

  // Starts the display, if it is hidden, because a report was received at this time.
  void Start(SteadyTime at);

  SteadyTime NextDeadline() const { return next_; }
  // Shows this text until the next deadline; an empty text hides the display.
  void Show(const std::string& text, SteadyTime now);

  // Hides the display until the next Start.
  void Hide();

 private:
  enum class Where { kNowhere, kReservedRow, kLog };
  static Where WhereFor(ProgressMode mode, const TerminalLine& line);

  const Where where_;
  TerminalLine* const line_;
  SteadyTime next_ = SteadyTime::InfiniteFuture();  // infinite while hidden
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_DISPLAY_H_
