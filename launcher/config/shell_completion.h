#ifndef DDPRUN_LAUNCHER_CONFIG_SHELL_COMPLETION_H_
#define DDPRUN_LAUNCHER_CONFIG_SHELL_COMPLETION_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// PURE: returns a script for `shell` (bash, zsh or fish) that completes ddprun's flags and their values, generated from
// the flag table; after the script's name it completes files. InvalidArgument: another shell.
absl::StatusOr<std::string> CompletionScript(absl::string_view shell);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_SHELL_COMPLETION_H_
