#ifndef DDPRUN_LAUNCHER_STORE_PARENT_PID_H_
#define DDPRUN_LAUNCHER_STORE_PARENT_PID_H_

#include <cstdint>

namespace ddprun::launcher {

// The parent of a process of this host, from /proc; 0 if there is no such process (any more) or it has no parent
// to be seen. Thread-safe.
uint32_t ParentPid(uint32_t pid);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_PARENT_PID_H_
