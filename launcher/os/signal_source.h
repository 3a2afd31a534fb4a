#ifndef DDPRUN_LAUNCHER_OS_SIGNAL_SOURCE_H_
#define DDPRUN_LAUNCHER_OS_SIGNAL_SOURCE_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/os/event_loop.h"
#include "launcher/os/unique_fd.h"

namespace ddprun::launcher {

struct ReceivedSignal {
  int number = 0;
  // Who sent it; 0 if the kernel did (a key on the terminal, a hang-up) or if it came from another pid namespace.
  pid_t sender = 0;
  uid_t sender_user = 0;
  std::string sender_name;  // the program's, as the kernel shortens it; empty if it could not be read
  // Sent by a process that this one can't see, from outside of its pid namespace (a container).
  bool from_outside = false;

  // By SLURM's keeper of the step, or from outside of a container: there is no other who would know of it.
  // REQUIRES: this process is in a step of SLURM.
  bool FromSlurm() const { return from_outside || sender_name == "slurmstepd"; }
  // "SIGTERM from process 123 (bash)", "SIGINT from the terminal or the kernel".
  std::string Text() const;
};

// Signals as events of the loop; no handler ever runs. Equal signals that come before the loop looks are one.
class SignalSource {
 public:
  // Blocks `signals` for the calling thread and all that it will start, and collects them from now on. Call before
  // any other thread exists. They stay blocked after the destructor: nothing may die of a late one. A SIGHUP that
  // is ignored at this time (nohup) stays ignored. InvalidArgument for a number that no program can handle.
  static absl::StatusOr<std::unique_ptr<SignalSource>> Create(const std::vector<int>& signals);
  // If attached, the loop must still exist: create the loop first (it starts no thread).
  ~SignalSource();
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;

  // From now on calls `callback` on the loop's thread for every signal, those since Create included. Once only.
  absl::Status Attach(EventLoop* loop, std::function<void(const ReceivedSignal&)> callback);

  // Calls the callback for all signals that have come so far, ahead of whatever else the loop has to do.
  // REQUIRES: attached; the callback does not destroy this object.
  void ReadAll();

 private:
  explicit SignalSource(UniqueFd fd) : fd_(std::move(fd)) {}
  bool ReadOne();

  const UniqueFd fd_;
  EventLoop* loop_ = nullptr;
  std::function<void(const ReceivedSignal&)> callback_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_SIGNAL_SOURCE_H_
