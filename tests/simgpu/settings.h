#ifndef DDPRUN_TESTS_SIMGPU_SETTINGS_H_
#define DDPRUN_TESTS_SIMGPU_SETTINGS_H_

#include <stdlib.h>

namespace simgpu {

// Value of an environment variable; README.md lists them. An empty variable counts as not set.
inline const char* TextSetting(const char* name) {
  const char* const value = getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

inline long NumberSetting(const char* name, long otherwise) {
  const char* const value = TextSetting(name);
  return value != nullptr ? atol(value) : otherwise;
}

}  // namespace simgpu

#endif  // DDPRUN_TESTS_SIMGPU_SETTINGS_H_
