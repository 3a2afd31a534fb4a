#ifndef DDPRUN_LAUNCHER_PROGRESS_BOTTOM_LINE_H_
#define DDPRUN_LAUNCHER_PROGRESS_BOTTOM_LINE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// A line in the last row of the terminal, which is taken out of the region that scrolls: workers may write to the
// terminal themselves at any time, and neither disturbs the other. Thread-compatible.
class BottomLine {
 public:
  // Whether standard error is a terminal that can do this, and this process is in its foreground.
  static bool Possible();

  ~BottomLine() { Hide(); }

  // Replaces the line, as much of it as the terminal is wide. Without effect on a terminal that is too small.
  void Show(absl::string_view text);

  // Removes it and gives the row back.
  void Hide();

 private:
  int rows_ = 0;  // of the terminal when the last one was reserved; 0: it is not
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_BOTTOM_LINE_H_
