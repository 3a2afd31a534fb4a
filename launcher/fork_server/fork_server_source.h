#ifndef DDPRUN_LAUNCHER_FORK_SERVER_FORK_SERVER_SOURCE_H_
#define DDPRUN_LAUNCHER_FORK_SERVER_FORK_SERVER_SOURCE_H_

namespace ddprun::launcher {

// Content of fork_server.py and the files that belong to it.
extern const char kForkServerSource[];

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_FORK_SERVER_FORK_SERVER_SOURCE_H_
