#ifndef DDPRUN_LAUNCHER_CONFIG_ENVIRONMENT_LOOKUP_H_
#define DDPRUN_LAUNCHER_CONFIG_ENVIRONMENT_LOOKUP_H_

#include <functional>
#include <optional>
#include <string>

namespace ddprun::launcher {

// Returns the value of an environment variable, if set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

// Returns the contents of a small file; empty if it can't be read.
using FileLookup = std::function<std::string(const std::string& path)>;

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_ENVIRONMENT_LOOKUP_H_
