#ifndef DDPRUN_LAUNCHER_PROCESS_COMPANION_FILE_H_
#define DDPRUN_LAUNCHER_PROCESS_COMPANION_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace ddprun::launcher {

// Path of a file installed with this program: next to its executable, or in ../lib from there. InvalidArgument, with
// both paths, if it is in neither. Thread-safe.
absl::StatusOr<std::string> CompanionFile(const std::string& name);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_COMPANION_FILE_H_
