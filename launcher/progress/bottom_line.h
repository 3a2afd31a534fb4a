#ifndef DDPRUN_LAUNCHER_PROGRESS_BOTTOM_LINE_H_
#define DDPRUN_LAUNCHER_PROGRESS_BOTTOM_LINE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// A line in the terminal's last row, which is excluded from the scrolling region, so that workers may write to the
// terminal at any time. Thread-compatible.
class BottomLine {
 public:
  // True if standard error is a terminal that supports this, and this process is in its foreground.
  static bool Possible();

  ~BottomLine() { Hide(); }

  // Replaces the line, truncated to the terminal's width. No effect on a terminal that is too small.
  void Show(absl::string_view text);

  // Removes the line and returns its row to the scrolling region.
  void Hide();

 private:
  int rows_ = 0;  // rows of the terminal when the last one was reserved; 0: not reserved
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_BOTTOM_LINE_H_
