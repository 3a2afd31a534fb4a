#ifndef DDPRUN_LAUNCHER_CONFIG_FLAG_VALUE_H_
#define DDPRUN_LAUNCHER_CONFIG_FLAG_VALUE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

// Parsers of plain flag values. Every error is InvalidArgument with one line that does not name the flag; the caller,
// which knows the source of the text, prepends that.
namespace ddprun::launcher {

// Parses an integer from `min` to `max`, both inclusive.
absl::StatusOr<int64_t> ParseInteger(absl::string_view text, int64_t min, int64_t max);

// Parses a number of seconds such as "30" or "0.5", at least zero and at most kMaxSeconds. Fractions of a nanosecond
// are dropped, as in messages, so that nodes with the same flag have the same value wherever the server runs.
absl::StatusOr<absl::Duration> ParseSeconds(absl::string_view text);
inline constexpr double kMaxSeconds = 1e8;

// Like ParseSeconds, but zero is an error as well.
absl::StatusOr<absl::Duration> ParsePositiveSeconds(absl::string_view text);

// Accepts 0/1, true/false, t/f, yes/no, y/n in any case.
absl::StatusOr<bool> ParseBool(absl::string_view text);

// Parses a user-chosen name (job id, role): not empty, at most 256 bytes, valid UTF-8, no control characters.
absl::StatusOr<std::string> ParseName(absl::string_view text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_FLAG_VALUE_H_
