#include "base/signal_name.h"

#include <signal.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace ddprun {

std::string SignalName(int signal) {
  if (signal == SIGIO) return "SIGIO";  // the C library's other name for it is SIGPOLL
  if (const char* name = sigabbrev_np(signal)) return absl::StrCat("SIG", name);
  if (signal == SIGRTMIN) return "SIGRTMIN";
  if (signal > SIGRTMIN && signal <= SIGRTMAX) return absl::StrCat("SIGRTMIN+", signal - SIGRTMIN);
  return absl::StrCat("signal ", signal);
}

}  // namespace ddprun
