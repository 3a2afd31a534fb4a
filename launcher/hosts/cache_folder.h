#ifndef DDPRUN_LAUNCHER_HOSTS_CACHE_FOLDER_H_
#define DDPRUN_LAUNCHER_HOSTS_CACHE_FOLDER_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

// Files of `ddprun --hosts` in the cache of the user on a host, $XDG_CACHE_HOME/ddprun: a folder with the program for
// each version that was copied there, and jobs/JOB for each detached job. Several hosts may share it.
namespace ddprun::launcher {

// The folder, which may not exist.
std::string CacheFolder();

// Makes the folder of a detached job and returns it. Only this user can read it. Error: of the system, with the path.
absl::StatusOr<std::string> MakeJobFolder(const std::string& job);

// Marks a file of a job's folder as in use, as long as this descriptor or a copy of it is open. `fd` must be open for
// reading and writing.
void HoldJobFile(int fd);

// If this process runs from a copy in a cache, marks the copy as in use until this process ends. Call it once.
void HoldProgramCopy();

// Removes copies of the program that were not started for 30 days, and the folders of jobs that have written nothing
// for 90 days (for a year if they have the token of a job), unless a process uses them on any host. Leaves everything
// else that it finds there. `cache`: a CacheFolder().
void RemoveOldCacheFiles(const std::string& cache, absl::Time now);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_CACHE_FOLDER_H_
