#ifndef DDPRUN_LAUNCHER_OS_CHILD_WATCH_H_
#define DDPRUN_LAUNCHER_OS_CHILD_WATCH_H_

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/os/event_loop.h"
#include "launcher/os/process_end.h"
#include "launcher/os/spawn.h"
#include "launcher/os/unique_fd.h"

namespace ddprun::launcher {

// Watches children by pidfd and reports their ends. Belongs to the loop's thread, and must be destroyed before the
// loop. When a child has ended, what is left of its process group is killed with SIGKILL first, and only then the
// child is reaped: until then its pid, which is the group's id, can't be given to anybody else.
class ChildWatch {
 public:
  // All ends that are known in one turn of the loop come in one call, in the order in which the kernel reported
  // them, so the first is the best candidate for the first cause. Not empty. May watch further children and signal
  // others, but not destroy the ChildWatch.
  using Callback = std::function<void(std::vector<ProcessEnd>)>;

  // `loop` must outlive the result.
  static absl::StatusOr<std::unique_ptr<ChildWatch>> Create(EventLoop* loop, Callback callback);
  // Children that still run are neither killed nor reaped.
  ~ChildWatch();
  ChildWatch(const ChildWatch&) = delete;
  ChildWatch& operator=(const ChildWatch&) = delete;

  // Takes over `child`, a direct child of this process that leads its own process group.
  absl::Status Watch(Child child);

  // Signals one watched child, or its whole process group. Returns false, and does nothing, if it is not watched
  // (its end has been reported); a child that has died but was not reported yet is fine to signal. A stopped child
  // does not act on SIGTERM before it gets SIGCONT.
  bool Signal(pid_t pid, int signal);
  bool SignalGroup(pid_t pid, int signal);

  // The children that are watched, in no order.
  std::vector<pid_t> pids() const;
  bool empty() const { return pidfds_.empty(); }

 private:
  ChildWatch(EventLoop* loop, UniqueFd ready, Callback callback);
  void OnReady();

  EventLoop* const loop_;
  // An epoll instance of its own inside the loop's: it keeps the order in which the pidfds became readable.
  const UniqueFd ready_;
  const Callback callback_;
  std::unordered_map<pid_t, UniqueFd> pidfds_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_CHILD_WATCH_H_
