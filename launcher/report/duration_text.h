#ifndef DDPRUN_LAUNCHER_REPORT_DURATION_TEXT_H_
#define DDPRUN_LAUNCHER_REPORT_DURATION_TEXT_H_

#include <string>

#include "absl/time/time.h"

// Human-readable durations.
namespace ddprun::launcher {

// Formats remaining time in whole seconds, rounded up, so that "0s" means that none is left: "9m58s", "2h0m5s".
std::string RemainingText(absl::Duration remaining);

// Formats elapsed time, rounded down: milliseconds below a second, tenths below a minute, then whole seconds: "350ms",
// "12.3s", "1m5s".
std::string ElapsedText(absl::Duration elapsed);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_DURATION_TEXT_H_
