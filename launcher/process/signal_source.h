#ifndef DDPRUN_LAUNCHER_PROCESS_SIGNAL_SOURCE_H_
#define DDPRUN_LAUNCHER_PROCESS_SIGNAL_SOURCE_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/file_descriptor.h"

namespace ddprun::launcher {

struct ReceivedSignal {
  int number = 0;
  // The sender; 0 if the kernel sent the signal (a key on the terminal, a hang-up) or it came from another pid
  // namespace.
  pid_t sender = 0;
  uid_t sender_user = 0;
  std::string sender_name;  // command name, truncated by the kernel; empty if not readable
  // True if the sender is outside this process's pid namespace (container).
  bool from_outside = false;

  // True if SLURM sent the signal: the sender is slurmstepd, or outside the container, where it can only be slurmstepd.
  // REQUIRES: this process is in a SLURM step.
  bool FromSlurm() const { return from_outside || sender_name == "slurmstepd"; }
  // "SIGTERM from process 123 (bash)", "SIGINT from the terminal or the kernel".
  std::string Text() const;
};

// Signals as events of the loop; no signal handler runs. Equal signals that arrive before the loop reads them are
// merged.
class SignalSource {
 public:
  // Blocks `signals` for the calling thread and all threads that it starts, and collects them from now on. Call before
  // any other thread exists. The signals stay blocked after the destructor, so that a late one can't kill the process.
  // A SIGHUP that is already ignored (nohup) stays ignored. InvalidArgument for a signal that can't be handled.
  static absl::StatusOr<std::unique_ptr<SignalSource>> Create(const std::vector<int>& signals);
  // If attached, the loop must still exist: create the loop first (it starts no thread).
  ~SignalSource();
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;

  // Calls `callback` on the loop's thread for every signal since Create. Call once.
  absl::Status Attach(EventLoop* loop, std::function<void(const ReceivedSignal&)> callback);

  // Calls the callback immediately for all signals that have arrived, ahead of other events of the loop.
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

#endif  // DDPRUN_LAUNCHER_PROCESS_SIGNAL_SOURCE_H_
