#ifndef DDPRUN_LAUNCHER_PROCESS_OWN_ENVIRONMENT_H_
#define DDPRUN_LAUNCHER_PROCESS_OWN_ENVIRONMENT_H_

#include <unistd.h>

#include <string>
#include <vector>

namespace ddprun::launcher {

// This process's environment, "NAME=value" each. Thread-safe while no thread sets environment variables.
inline std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.push_back(*entry);
  return entries;
}

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_OWN_ENVIRONMENT_H_
