#ifndef DDPRUN_LAUNCHER_REPORT_DURATION_TEXT_H_
#define DDPRUN_LAUNCHER_REPORT_DURATION_TEXT_H_

#include <string>

#include "absl/time/time.h"

// Durations for people.
namespace ddprun::launcher {

// What is left: whole seconds, rounded up, so that it is "0s" only when nothing is left: "9m58s", "2h0m5s".
std::string RemainingText(absl::Duration remaining);

// What has passed: milliseconds below a second, tenths below a minute, then whole seconds: "350ms", "12.3s", "1m5s".
// Never longer than it was.
std::string ElapsedText(absl::Duration elapsed);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_DURATION_TEXT_H_
