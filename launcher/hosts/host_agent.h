#ifndef DDPRUN_LAUNCHER_HOSTS_HOST_AGENT_H_
#define DDPRUN_LAUNCHER_HOSTS_HOST_AGENT_H_

namespace ddprun::launcher {

// Runs the agent of `ddprun --hosts` on one of its hosts: reads HostCommands from standard input and writes HostReports
// to standard output. It checks the host, starts the job's launcher there, which does not depend on it (host_job.h),
// and follows the launcher's output from any position. It ends with its input. Returns the exit code. Call it from the
// main thread, before any other thread exists.
int RunHostAgent();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_HOST_AGENT_H_
