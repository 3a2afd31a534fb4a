#ifndef DDPRUN_LAUNCHER_STATUS_LINE_H_
#define DDPRUN_LAUNCHER_STATUS_LINE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// One line at the bottom of a terminal that says what the launcher waits for, and is gone when it goes on. Where
// standard error is no terminal nothing is ever written. Thread-compatible.
class StatusLine {
 public:
  StatusLine();
  ~StatusLine() { Show(""); }

  // Replaces the line; an empty text removes it.
  void Show(absl::string_view text);

  // Takes the line away for as long as something else is printed to the terminal.
  template <typename Print>
  void Around(Print print) {
    const std::string text = shown_;
    Show("");
    print();
    Show(text);
  }

 private:
  const bool terminal_;
  std::string shown_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_LINE_H_
