#include "launcher/config/flag_value.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxNameBytes = 256;

bool IsOneOf(absl::string_view text, std::initializer_list<absl::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](absl::string_view word) { return absl::EqualsIgnoreCase(text, word); });
}

}  // namespace

absl::StatusOr<int64_t> ParseInteger(absl::string_view text, int64_t min, int64_t max) {
  int64_t value = 0;
  // SimpleAtoi accepts blanks and a plus sign, which are mistakes in a flag.
  const bool plain = text.find_first_not_of("-0123456789") == absl::string_view::npos;
  if (!plain || !absl::SimpleAtoi(text, &value) || value < min || value > max) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is not a whole number from ", min, " to ", max));
  }
  return value;
}

absl::StatusOr<absl::Duration> ParseSeconds(absl::string_view text) {
  double seconds = 0;
  const bool digits_only = text.find_first_not_of("0123456789.") == absl::string_view::npos;
  if (text.size() > 1 && text.front() == '-' && absl::SimpleAtod(text, &seconds)) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is negative: give a number of seconds"));
  }
  if (!digits_only || !absl::SimpleAtod(text, &seconds)) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is not a number of seconds, such as 30 or 0.5"));
  }
  if (seconds > kMaxSeconds) {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(text), " is too long: at most ", static_cast<int64_t>(kMaxSeconds), " seconds"));
  }
  return absl::Trunc(absl::Seconds(seconds), absl::Nanoseconds(1));
}

absl::StatusOr<absl::Duration> ParsePositiveSeconds(absl::string_view text) {
  absl::StatusOr<absl::Duration> seconds = ParseSeconds(text);
  if (seconds.ok() && *seconds <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is too short: it must be more than 0 seconds"));
  }
  return seconds;
}

absl::StatusOr<bool> ParseBool(absl::string_view text) {
  if (IsOneOf(text, {"1", "true", "t", "yes", "y"})) return true;
  if (IsOneOf(text, {"0", "false", "f", "no", "n"})) return false;
  return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is neither 1 (true) nor 0 (false)"));
}

absl::StatusOr<std::string> ParseName(absl::string_view text) {
  if (text.empty()) return absl::InvalidArgumentError("the name is empty");
  if (text.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the name is ", text.size(), " bytes long: at most ", kMaxNameBytes));
  }
  if (OneLine(text, kMaxNameBytes) != text) {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(text), " has leading or trailing blanks, or unprintable bytes"));
  }
  return std::string(text);
}

}  // namespace ddprun::launcher
