#include "launcher/report/duration_text.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

std::string WholeSeconds(int64_t seconds) {
  const int64_t hours = seconds / 3600;
  const int64_t minutes = seconds / 60 % 60;
  std::string text;
  if (hours > 0) absl::StrAppend(&text, hours, "h");
  if (hours > 0 || minutes > 0) absl::StrAppend(&text, minutes, "m");
  return absl::StrCat(text, seconds % 60, "s");
}

}  // namespace

std::string RemainingText(absl::Duration remaining) {
  if (remaining == absl::InfiniteDuration()) return "forever";
  remaining = std::max(remaining, absl::ZeroDuration());
  return WholeSeconds(absl::ToInt64Seconds(absl::Ceil(remaining, absl::Seconds(1))));
}

std::string ElapsedText(absl::Duration elapsed) {
  if (elapsed == absl::InfiniteDuration()) return "forever";
  elapsed = std::max(elapsed, absl::ZeroDuration());
  if (elapsed < absl::Seconds(1)) return absl::StrCat(absl::ToInt64Milliseconds(elapsed), "ms");
  if (elapsed < absl::Minutes(1)) {
    const int64_t tenths = elapsed / absl::Milliseconds(100);
    return absl::StrCat(tenths / 10, ".", tenths % 10, "s");
  }
  return WholeSeconds(absl::ToInt64Seconds(elapsed));
}

}  // namespace ddprun::launcher
