#ifndef DDPRUN_LAUNCHER_OS_COMPANION_FILE_H_
#define DDPRUN_LAUNCHER_OS_COMPANION_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace ddprun::launcher {

// The path of a file that belongs to this program: beside its executable, or in ../lib from there, as it is installed.
// InvalidArgument, with both places, if it is in neither. Thread-safe.
absl::StatusOr<std::string> CompanionFile(const std::string& name);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_COMPANION_FILE_H_
