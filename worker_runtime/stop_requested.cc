#include "worker_runtime/stop_requested.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <optional>

#include "absl/strings/numbers.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "worker_contract/environment.h"
#include "worker_runtime/base/launcher_link.h"
#include "worker_runtime/process_group/collectives.h"

namespace ddprun {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kDefaultGraceSeconds = 30;

// Arrival of the first signal on the steady clock; 0: none yet.
std::atomic<int64_t> signalled_nanoseconds = 0;

int64_t SteadyNanoseconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{1000000000} * now.tv_sec + now.tv_nsec;
}

void OnSignal(int) {
  int64_t none = 0;
  signalled_nanoseconds.compare_exchange_strong(none, SteadyNanoseconds());
}

void AwaitSignal() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    if (sigaction(SIGTERM, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
    action.sa_handler = OnSignal;
    action.sa_flags = SA_RESTART;
    sigaction(SIGTERM, &action, nullptr);
  });
}

double GraceSeconds() {
  const char* const text = getenv(worker_contract::kStopGrace);
  double seconds = 0;
  return text != nullptr && absl::SimpleAtod(text, &seconds) && seconds >= 0 ? seconds : kDefaultGraceSeconds;
}

// Seconds until this process is killed.
double SecondsLeft() {
  // The launcher's deadline takes precedence over its grace: another reason to kill may shorten it.
  if (const std::optional<SteadyTime> stop_at = LauncherLink::OfProcess().StopAt(); stop_at.has_value()) {
    return std::max(0.0, absl::ToDoubleSeconds(*stop_at - SteadyNow()));
  }
  const int64_t signalled = signalled_nanoseconds.load();
  if (signalled == 0) return kNever;
  return std::max(0.0, GraceSeconds() - 1e-9 * static_cast<double>(SteadyNanoseconds() - signalled));
}

}  // namespace

absl::Duration TimeUntilStop() {
  AwaitSignal();
  return absl::Seconds(SecondsLeft());
}

absl::StatusOr<std::optional<absl::Time>> StopRequested(ProcessGroup& group) {
  AwaitSignal();
  DDPRUN_ASSIGN_OR_RETURN(const double left, AllReduceValue(group, SecondsLeft(), ReduceOp::kMin));
  if (std::isinf(left)) return std::nullopt;
  return absl::Now() + absl::Seconds(left);
}

void IgnoreWarningSignals() {
  for (const int signal : {SIGUSR1, SIGUSR2}) {
    struct sigaction action = {};
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action.sa_handler = SIG_IGN;
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace ddprun
