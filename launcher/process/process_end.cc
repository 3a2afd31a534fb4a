#include "launcher/process/process_end.h"

#include <sys/wait.h>

#include "absl/strings/str_cat.h"
#include "base/process.h"

namespace ddprun::launcher {

std::string ProcessEnd::Text() const {
  if (kind == Kind::kExited) return absl::StrCat("exited with code ", code);
  return absl::StrCat("killed by ", SignalName(code), " (", code, ")");
}

ProcessEnd ProcessEnd::FromWait(pid_t pid, int wait_status) {
  ProcessEnd end;
  end.pid = pid;
  if (WIFSIGNALED(wait_status)) {
    end.kind = Kind::kSignaled;
    end.code = WTERMSIG(wait_status);
    end.dumped = WCOREDUMP(wait_status);
  } else {
    end.code = WEXITSTATUS(wait_status);
  }
  return end;
}

}  // namespace ddprun::launcher
