#ifndef DDPRUN_LAUNCHER_CONFIG_SHELL_COMPLETION_H_
#define DDPRUN_LAUNCHER_CONFIG_SHELL_COMPLETION_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// PURE: a script for `shell` (bash, zsh or fish) that completes ddprun's flags and their values, made from the flag
// table; behind the script's name, files. InvalidArgument: another shell.
absl::StatusOr<std::string> CompletionScript(absl::string_view shell);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_SHELL_COMPLETION_H_
