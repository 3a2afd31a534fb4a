#ifndef DDPRUN_LAUNCHER_CONFIG_ENVIRONMENT_LOOKUP_H_
#define DDPRUN_LAUNCHER_CONFIG_ENVIRONMENT_LOOKUP_H_

#include <functional>
#include <optional>
#include <string>

namespace ddprun::launcher {

// Returns the value of an environment variable, if set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_ENVIRONMENT_LOOKUP_H_
