#ifndef DDPRUN_LAUNCHER_CONFIG_FORKED_SERVER_H_
#define DDPRUN_LAUNCHER_CONFIG_FORKED_SERVER_H_

#include <sys/types.h>

namespace ddprun::launcher {

// A fork server that is a child of this process since before its exec: a Python program forked it from itself, and then
// became this launcher (packaging/wheel/ddprun/forking.py).
struct ForkedServer {
  int socket = -1;  // this process's end
  pid_t pid = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_FORKED_SERVER_H_
