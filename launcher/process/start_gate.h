#ifndef DDPRUN_LAUNCHER_PROCESS_START_GATE_H_
#define DDPRUN_LAUNCHER_PROCESS_START_GATE_H_

#include <optional>

#include "absl/status/statusor.h"
#include "launcher/io/unique_fd.h"

namespace ddprun::launcher {

// Holds back a new process until the launcher has registered it and allows it to run user code. This is the launcher's
// end of a socket; the process reads one byte from the other end, and continues only if it receives one. Destroying an
// unopened gate does not end the process: kill it. Thread-compatible.
class StartGate {
 public:
  struct Ends;

  // ResourceExhausted or another error of socketpair.
  static absl::StatusOr<Ends> Create();

  // Lets the process continue. Does not block.
  void Open();

  // The errno sent by the process because it could not execute its program; unset if it has sent none. Each error is
  // returned once.
  std::optional<int> TakeError();

  int fd() const { return socket_.get(); }

 private:
  UniqueFd socket_;
};

// Both ends are close-on-exec.
struct StartGate::Ends {
  StartGate launcher;
  UniqueFd process;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_START_GATE_H_
