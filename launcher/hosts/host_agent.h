#ifndef DDPRUN_LAUNCHER_HOSTS_HOST_AGENT_H_
#define DDPRUN_LAUNCHER_HOSTS_HOST_AGENT_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/steady_time.h"

// The job of `ddprun --hosts` on one of its hosts. A keeper (RunHostKeeper) is the parent of the launcher, in a session
// of its own, and knows no connection. An agent (RunHostAgent) is what ssh starts: it checks the host, starts the
// keeper, and follows the launcher's output from any position; it ends with its connection, and the next one continues.
// They meet in a folder that only this user can read, CacheFolder()/jobs/JOB/HOST:
//   control        a FIFO with commands for the keeper, whose last reader ends with the keeper
//   token          a random word, of this start of the job; removed at the end of the lease
//   stdout.N.log, stderr.N.log   the launcher's output (segmented_log.h)
//   result         a HostReport.Ended, once the launcher has ended; but at the end of a lease the folder is removed
// The keeper touches the folder every 5 s.
namespace ddprun::launcher {

// Without a renewal for this long, the keeper stops a launcher that is not detached.
inline constexpr absl::Duration kLease = absl::Seconds(60);

// PURE. Decides when a keeper stops its launcher: with SIGTERM at the end of the lease, and with SIGKILL 120 s later if
// the launcher still stops its workers.
class HostLease {
 public:
  // Without an end, for a detached job.
  HostLease() = default;
  explicit HostLease(SteadyTime now) : end_(now + kLease) {}

  // No-ops if it has no end, or has ended.
  void Renew(SteadyTime now) { MoveEnd(now + kLease); }
  void EndNow(SteadyTime now) { MoveEnd(now); }
  bool has_ended() const { return has_ended_; }

  SteadyTime NextDeadline() const { return std::min(end_, kill_at_); }
  // Returns the signal that is due, once; 0: none.
  int TakeSignal(SteadyTime now);

 private:
  void MoveEnd(SteadyTime end) {
    if (end_ != SteadyTime::InfiniteFuture()) end_ = end;
  }

  SteadyTime end_ = SteadyTime::InfiniteFuture();
  SteadyTime kill_at_ = SteadyTime::InfiniteFuture();
  bool has_ended_ = false;
};

// Commands of one byte for a keeper; all others are signals for the launcher.
inline constexpr uint8_t kRenewLease = 0;
inline constexpr uint8_t kFrontEnded = 255;  // the lease ends now

// Arguments with which this program is a keeper: then the folder, "lease" or "detached", and those of the launcher.
inline constexpr char kKeeperArgument[] = "--host-keeper";
// Variable of the launcher: number of a descriptor to which it writes a JobFailure instead of the summary.
inline constexpr char kFailureFdVariable[] = "DDPRUN_FAILURE_FD";
// Variable of the launcher: number of a socket that listens at the port of its rendezvous server.
inline constexpr char kListenerFdVariable[] = "DDPRUN_LISTENER_FD";

// The folder of a job; `name` is Prepare.job.
std::string JobFolder(const std::string& name);
// Makes a folder, and those above it, for this user only. Error: of the system, with the path.
absl::Status MakeFolder(const std::string& path);

// Runs an agent: reads HostCommands from standard input and writes HostReports to standard output until the input ends.
// Returns the exit code. Call it from the main thread, before any other thread exists.
int RunHostAgent();

// Runs a keeper, with `control` as its standard input, until its launcher has ended. Returns the exit code.
int RunHostKeeper(const std::vector<std::string>& arguments);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_HOST_AGENT_H_
