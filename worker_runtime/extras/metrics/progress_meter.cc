#include "worker_runtime/extras/metrics/progress_meter.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text.h"

namespace ddprun {
namespace {

// Interval on a terminal; more frequent updates are unreadable.
constexpr absl::Duration kRedraw = absl::Milliseconds(200);
constexpr int kFewestColumns = 20;

std::string Rate(double per_second) {
  return per_second >= 100 ? absl::StrFormat("%.0f", per_second) : absl::StrFormat("%.3g", per_second);
}

}  // namespace

std::string ProgressMeter::Update(int64_t step, const std::map<std::string, double>& metrics, SteadyTime now,
                                  int columns) {
  const bool last = IsLast(step);
  if (!last && now - shown_.time < (columns > 0 ? kRedraw : options_.every)) return "";
  const std::string line = Line(step, metrics, now);
  shown_ = {step, now};
  if (columns <= 0) return absl::StrCat(line, "\n");
  // A line as wide as the terminal would make it scroll.
  return absl::StrCat("\r", OneLine(line, std::max(columns, kFewestColumns) - 1), "\x1b[K", last ? "\n" : "");
}

std::string ProgressMeter::Line(int64_t step, const std::map<std::string, double>& metrics, SteadyTime now) const {
  std::string line = absl::StrCat("step ", step);
  if (options_.total_steps > 0) {
    absl::StrAppend(&line, "/", options_.total_steps, " (", 100 * step / options_.total_steps, "%)");
  }
  for (const auto& [name, value] : metrics) absl::StrAppendFormat(&line, "  %s %.4g", name, value);
  const double seconds = absl::ToDoubleSeconds(now - shown_.time);
  if (step > shown_.step && seconds > 0) {
    const double rate = static_cast<double>(step - shown_.step) / seconds;
    absl::StrAppend(&line, "  ", Rate(rate), " steps/s");
    if (options_.items_per_step > 0) {
      absl::StrAppend(&line, "  ", Rate(rate * options_.items_per_step), " ", options_.item, "/s");
    }
  }
  const absl::Duration elapsed = now - began_.time;
  if (IsLast(step)) {
    absl::StrAppend(&line, "  took ", absl::FormatDuration(absl::Trunc(elapsed, absl::Seconds(1))));
  } else if (step > began_.step && options_.total_steps > step) {
    const absl::Duration left = elapsed * (options_.total_steps - step) / (step - began_.step);
    absl::StrAppend(&line, "  ETA ", absl::FormatDuration(absl::Ceil(left, absl::Seconds(1))));
  }
  return line;
}

}  // namespace ddprun
