#ifndef DDPRUN_LAUNCHER_FORK_SERVER_LINKS_WORKER_RUNTIME_H_
#define DDPRUN_LAUNCHER_FORK_SERVER_LINKS_WORKER_RUNTIME_H_

#include <string>

namespace ddprun::launcher {

// True if this file is a program that contains the worker runtime, and can therefore fork workers (--preload). Reads
// the whole file. Other programs must not be started without a rank, because they would do their work.
bool IsLinkedWithWorkerRuntime(const std::string& file);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_FORK_SERVER_LINKS_WORKER_RUNTIME_H_
