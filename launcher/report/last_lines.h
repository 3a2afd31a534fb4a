#ifndef DDPRUN_LAUNCHER_REPORT_LAST_LINES_H_
#define DDPRUN_LAUNCHER_REPORT_LAST_LINES_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// The end of a worker's output as a person would read it on a terminal, safe to display and send.
struct LastLines {
  static constexpr size_t kMaxLines = 20;
  static constexpr size_t kMaxLineBytes = 300;

  std::string text;   // the last lines that are not blank, without a final line end; empty: there were none
  std::string error;  // the last line of the text that reports an error, without indentation; empty: none does
  std::string last;   // the last line of the text, without indentation
};

// Removes escape sequences (colors), keeps the last state of a line that was overwritten (progress bars), replaces
// invalid UTF-8, and finds the error: the last line that is not indented, as frames of a stack are, and has a word like
// "error". Warnings, Python's "Exception ignored in", and lines that contain `known` do not count.
LastLines ReadLastLines(absl::string_view bytes, absl::string_view known = "");

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_LAST_LINES_H_
