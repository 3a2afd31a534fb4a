#ifndef DDPRUN_LAUNCHER_HOSTS_JOB_FOLDER_H_
#define DDPRUN_LAUNCHER_HOSTS_JOB_FOLDER_H_

#include <string>

#include "absl/status/statusor.h"

namespace ddprun::launcher {

// Makes the folder of a detached job in this user's cache, $XDG_CACHE_HOME/ddprun/jobs/JOB, and returns it. Only this
// user can read it. Error: of the system, with the path.
absl::StatusOr<std::string> MakeJobFolder(const std::string& job);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_JOB_FOLDER_H_
