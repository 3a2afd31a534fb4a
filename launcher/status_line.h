#ifndef DDPRUN_LAUNCHER_STATUS_LINE_H_
#define DDPRUN_LAUNCHER_STATUS_LINE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Status line at the bottom of a terminal that shows what the launcher is waiting for. Writes nothing if stderr is not
// a terminal. Thread-compatible.
class StatusLine {
 public:
  StatusLine();
  ~StatusLine() { Show(""); }

  // Replaces the line; empty text removes it.
  void Show(absl::string_view text);

  // Hides the line while other output is printed to the terminal.
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
