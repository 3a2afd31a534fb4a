#ifndef DDPRUN_LAUNCHER_PROCESS_PROCESS_END_H_
#define DDPRUN_LAUNCHER_PROCESS_PROCESS_END_H_

#include <sys/types.h>

#include <string>

#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {

// How a process ended. Thread-compatible value type.
struct ProcessEnd {
  enum class Kind { kExited, kSignaled };

  pid_t pid = -1;
  Kind kind = Kind::kExited;
  int code = 0;  // kExited: exit code, 0 to 255; kSignaled: signal number

  bool dumped = false;  // a core dump was written

  bool ok() const { return kind == Kind::kExited && code == 0; }

  // Exit status as in a shell: the exit code, or 128 + signal.
  int ExitCode() const { return kind == Kind::kExited ? code : worker_contract::ExitCodeOfSignal(code); }

  // "exited with code 7", "killed by SIGSEGV (11)".
  std::string Text() const;

  // Converts waitpid's status.
  static ProcessEnd FromWait(pid_t pid, int wait_status);
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_PROCESS_END_H_
