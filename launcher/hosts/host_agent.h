#ifndef DDPRUN_LAUNCHER_HOSTS_HOST_AGENT_H_
#define DDPRUN_LAUNCHER_HOSTS_HOST_AGENT_H_

#include <optional>

namespace ddprun::launcher {

// Runs the agent of `ddprun --hosts` on one of its hosts: reads HostCommands from standard input and writes HostReports
// to standard output. It runs this program again as the host's launcher, and stops it when its input ends or is silent
// for a minute; a detached launcher continues. If the job can do without this host for a while, it stops it only if the
// front has ended, and waits for a minute if the connection is lost. `is_front_here`: the front runs on this host, and
// there is no connection to lose. Returns the exit code. Call it from the main thread, before any other
// thread exists.
int RunHostAgent(bool is_front_here);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_HOST_AGENT_H_
