#ifndef DDPRUN_LAUNCHER_FORK_SERVER_JOB_PROCESS_H_
#define DDPRUN_LAUNCHER_FORK_SERVER_JOB_PROCESS_H_

#include <sys/types.h>

#include <functional>

#include "launcher/os/event_loop.h"
#include "launcher/os/unique_fd.h"

namespace ddprun::launcher {

// The copy of a kept fork server that is the parent of this job's workers (kept_server.py). Belongs to the loop's
// thread.
class JobProcess {
 public:
  // `on_swept` is called when a sweep has ended, or will not. It must not destroy this object.
  JobProcess(pid_t pid, UniqueFd socket, EventLoop* loop, std::function<void()> on_swept);
  // The process kills all its descendants and ends.
  ~JobProcess();
  JobProcess(const JobProcess&) = delete;
  JobProcess& operator=(const JobProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Reaps a worker, whose end has been seen: until then its pid can't be reused.
  void Reap(pid_t worker);
  // Kills what workers have left behind.
  void Sweep();
  bool sweeping() const { return sweeping_; }

 private:
  void OnReadable();

  const pid_t pid_;
  UniqueFd socket_;
  EventLoop* const loop_;
  const std::function<void()> on_swept_;
  bool sweeping_ = false;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_FORK_SERVER_JOB_PROCESS_H_
