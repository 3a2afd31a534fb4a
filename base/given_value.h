#ifndef DDPRUN_BASE_GIVEN_VALUE_H_
#define DDPRUN_BASE_GIVEN_VALUE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Repairs of values that users give in flags, environment variables and files.
namespace ddprun {

// Returns `text` without what can't be meant: surrounding blanks and line ends (a script with CRLF, YAML) and one pair
// of quotes around all of it (quoted twice, or where no shell removes them).
absl::string_view TrimValue(absl::string_view text);

// Returns `path` with a leading "~" replaced by `home`, the value of HOME. A shell expands it at the start of a word
// only, neither after "--flag=" nor in YAML. InvalidArgument: the path begins with "~", but not with "~/", or `home` is
// empty; one line that quotes the path.
absl::StatusOr<std::string> ExpandHome(absl::string_view path, absl::string_view home);

}  // namespace ddprun

#endif  // DDPRUN_BASE_GIVEN_VALUE_H_
