#ifndef DDPRUN_LAUNCHER_HOSTS_HOST_JOB_H_
#define DDPRUN_LAUNCHER_HOSTS_HOST_JOB_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "launcher/io/file_descriptor.h"
#include "proto/hosts.pb.h"

// The launcher of a job on one host, independent of any connection. Its parent is a keeper (RunHostKeeper), and it has
// a folder that only this user can read, CacheFolder()/jobs/JOB/HOST:
//   control        a FIFO with commands for the keeper, whose last reader ends with the keeper
//   token          a random word, of this start of the job
//   stdout.N.log, stderr.N.log   the launcher's output (segmented_log.h)
//   result         a HostReport.Ended, once the launcher has ended; but at the end of a lease the folder is removed
// The keeper touches the folder every kHeartbeat.
namespace ddprun::launcher {

inline constexpr absl::Duration kHeartbeat = absl::Seconds(5);
// Without a renewal for this long, the keeper stops a launcher that is not detached.
inline constexpr absl::Duration kLease = absl::Seconds(60);

// Commands of one byte for a keeper; all others are signals for the launcher.
inline constexpr uint8_t kRenewLease = 0;
inline constexpr uint8_t kFrontEnded = 255;  // the lease ends now

// Arguments with which this program is a keeper: then the folder, "lease" or "detached", and those of the launcher.
inline constexpr char kKeeperArgument[] = "--host-keeper";
// Variable of the launcher: number of a descriptor to which it writes a JobFailure instead of the summary.
inline constexpr char kFailureFdVariable[] = "DDPRUN_FAILURE_FD";
// Variable of the launcher: number of a socket that listens at the port of its rendezvous server.
inline constexpr char kListenerFdVariable[] = "DDPRUN_LISTENER_FD";

// $XDG_CACHE_HOME/ddprun, with a folder for each version of the program that was copied there, and `jobs`.
std::string CacheFolder();

// The folder of a job; `name` is Prepare.job.
std::string JobFolder(const std::string& name);
// Makes a folder, and those above it. Error: of the system, with the path.
absl::Status MakeFolder(const std::string& path);

// Starts a keeper with a launcher, unless that was done before with this token. `listener` becomes the launcher's; -1:
// none. Errors of HasHostJob. Call it from the main thread.
absl::Status StartHostJob(const std::string& folder, const std::string& token,
                          const hosts::v1::HostCommand::Start& start, int listener);

// Functions for followers of a job. `folder` is a JobFolder.

// True if the start of the job with this token, or any for an empty one, runs or has ended there. AlreadyExists:
// another one runs. NotFound: any was wanted, and there is none.
absl::StatusOr<bool> HasHostJob(const std::string& folder, const std::string& token);
bool KeeperRuns(const std::string& folder);
// No-op if no keeper runs.
void SendToKeeper(const std::string& folder, uint8_t command);
// Absent: the launcher has not ended, or its keeper was killed.
std::optional<hosts::v1::HostReport::Ended> ResultOf(const std::string& folder);
// Removes the folder. REQUIRES: the launcher has ended.
void RemoveHostJob(const std::string& folder);
// Stem of the log of the launcher's stdout or stderr (segmented_log.h).
std::string LogStem(const std::string& folder, bool is_stderr);

// Runs a keeper, with a FIFO as its standard input, until its launcher has ended. Returns the exit code.
int RunHostKeeper(const std::vector<std::string>& arguments);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_HOST_JOB_H_
