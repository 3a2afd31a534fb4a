#ifndef DDPRUN_LAUNCHER_IO_LINE_PREFIXER_H_
#define DDPRUN_LAUNCHER_IO_LINE_PREFIXER_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Splits a stream of bytes into lines and prefixes each directly before its first byte, as torchrun does. Only complete
// lines are output, so that lines of several streams don't mix. A carriage return also ends a line (for progress bars),
// and a line feed directly after it belongs to the same line. Invalid text is passed through. Pure; thread-compatible.
class LinePrefixer {
 public:
  static constexpr size_t kMaxLine = size_t{4} << 20;

  // A line of more than `max_line` bytes is output as several lines, to bound memory. `time` returns the replacement
  // for each "${time}" (kTimeMacro of output_settings.h) in the prefix, per line; if null, macros are kept.
  explicit LinePrefixer(std::string prefix, size_t max_line = kMaxLine, std::function<std::string()> time = nullptr);

  // Lines whose text, without the prefix, contains one of `filters` are also output to `matching`.
  void SetFilters(std::vector<std::string> filters) { filters_ = std::move(filters); }

  // Consumes `bytes` and appends all lines that are now complete to `out`.
  void Feed(absl::string_view bytes, std::string* out, std::string* matching = nullptr);

  // Ends the stream: appends the remaining bytes with a line end.
  void Finish(std::string* out, std::string* matching = nullptr);

 private:
  // Appends the buffered start of a line and `rest` of it.
  void Emit(absl::string_view rest, std::string* out, std::string* matching);

  const std::string prefix_;
  const size_t max_line_;
  const std::function<std::string()> time_;  // null: the prefix is the same for all lines
  std::vector<std::string> filters_;
  std::string line_;           // start of an incomplete line, at most max_line_ bytes
  bool after_return_ = false;  // the last byte was a carriage return
  bool matched_ = false;       // the last line contained a filter
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_IO_LINE_PREFIXER_H_
