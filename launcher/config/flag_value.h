#ifndef DDPRUN_LAUNCHER_CONFIG_FLAG_VALUE_H_
#define DDPRUN_LAUNCHER_CONFIG_FLAG_VALUE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

// Plain values as people type them. Every error is InvalidArgument with one line that does not name the flag:
// the caller, who knows where the text came from, puts that in front.
namespace ddprun::launcher {

// `text` in single quotes for a message: control characters escaped, cut short if it is long.
std::string Quoted(absl::string_view text);

// A whole number from `min` to `max`, both included.
absl::StatusOr<int64_t> ParseInteger(absl::string_view text, int64_t min, int64_t max);

// A number of seconds such as "30" or "0.5", at least zero and at most kMaxSeconds. Parts of a nanosecond are dropped,
// as in messages: nodes with the same flag have the same value wherever the server is.
absl::StatusOr<absl::Duration> ParseSeconds(absl::string_view text);
inline constexpr double kMaxSeconds = 1e8;

// As ParseSeconds, but zero is an error too.
absl::StatusOr<absl::Duration> ParsePositiveSeconds(absl::string_view text);

// 0/1, true/false, t/f, yes/no, y/n in any case.
absl::StatusOr<bool> ParseBool(absl::string_view text);

// A name that people choose (job id, role): not empty, at most 256 bytes, valid UTF-8, no control characters.
absl::StatusOr<std::string> ParseName(absl::string_view text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_FLAG_VALUE_H_
