#ifndef DDPRUN_BASE_LOCAL_JOBS_H_
#define DDPRUN_BASE_LOCAL_JOBS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

// How ddprunctl finds the jobs of launchers on its host: each launcher listens on a Unix socket in the abstract
// namespace, whose name has a known prefix, and sends its job and the address of that job's server to processes of its
// own user and of root. Both sides check the other's user. Such names exist once per network namespace.
namespace ddprun {

struct LocalJob {
  pid_t launcher = 0;
  std::string server;  // "127.0.0.1:29400", or several with commas
  std::string job_id;
  std::string token;  // for calls to that server; empty: as for any other server
};

// Returns a non-blocking socket on which AcceptLocalJob accepts; it belongs to the caller.
absl::StatusOr<int> ListenForLocalJobs();

// Accepts one connection of `listener`. Returns it if its process may ask, else -1: it was closed, or there is none.
int AcceptLocalJob(int listener);

// Sends the job and closes the connection; never blocks.
void AnswerLocalJob(int connection, const LocalJob& job);

// Jobs of launchers on this host of this user, or of all users for root; by process. Launchers that do not answer
// within two seconds are left out.
std::vector<LocalJob> FindLocalJobs();

}  // namespace ddprun

#endif  // DDPRUN_BASE_LOCAL_JOBS_H_
