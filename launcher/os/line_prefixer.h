#ifndef DDPRUN_LAUNCHER_OS_LINE_PREFIXER_H_
#define DDPRUN_LAUNCHER_OS_LINE_PREFIXER_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Splits a stream of bytes into lines and prefixes each, as torchrun does: directly before the first byte. Only
// complete lines are output, so that lines of several streams don't mix. A carriage return also ends a line (for
// progress bars), and a line feed directly after it belongs to the same line. Invalid text is passed through. Pure;
// thread-compatible.
class LinePrefixer {
 public:
  static constexpr size_t kMaxLine = size_t{4} << 20;

  // A line of more than `max_line` bytes is output as several lines, to bound memory. `time` gives the text for each
  // "${time}" (kTimeMacro of line_prefix.h) in the prefix, line by line; without it they stay.
  explicit LinePrefixer(std::string prefix, size_t max_line = kMaxLine, std::function<std::string()> time = nullptr);

  // Lines that contain one of `filters`, before the prefix, are output to `matching` as well.
  void SetFilters(std::vector<std::string> filters) { filters_ = std::move(filters); }

  // Takes `bytes` and appends to `out` all lines that have become complete.
  void Feed(absl::string_view bytes, std::string* out, std::string* matching = nullptr);

  // The stream has ended: appends what is left, with a line end.
  void Finish(std::string* out, std::string* matching = nullptr);

 private:
  // Appends the line kept so far and `rest` of it.
  void Emit(absl::string_view rest, std::string* out, std::string* matching);

  const std::string prefix_;
  const size_t max_line_;
  const std::function<std::string()> time_;  // null: the prefix is the same for all lines
  std::vector<std::string> filters_;
  std::string line_;           // the beginning of a line whose end has not come, at most max_line_ bytes
  bool after_return_ = false;  // the last byte was a carriage return
  bool matched_ = false;       // the last line contained a filter
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_LINE_PREFIXER_H_
