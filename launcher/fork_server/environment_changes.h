#ifndef DDPRUN_LAUNCHER_FORK_SERVER_ENVIRONMENT_CHANGES_H_
#define DDPRUN_LAUNCHER_FORK_SERVER_ENVIRONMENT_CHANGES_H_

#include <string>
#include <vector>

#include "absl/types/span.h"

namespace ddprun::launcher {

// Changes that turn the environment `from` into `to`: "NAME=value" sets a variable, "NAME" removes it.
std::vector<std::string> EnvironmentChanges(absl::Span<const std::string> from, absl::Span<const std::string> to);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_FORK_SERVER_ENVIRONMENT_CHANGES_H_
