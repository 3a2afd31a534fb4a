#ifndef DDPRUN_BASE_UTC_TEXT_H_
#define DDPRUN_BASE_UTC_TEXT_H_

#include <string>

#include "absl/time/time.h"

namespace ddprun {

// Formats the time as in log lines: "2026-11-22T01:30:00.123Z". Thread-safe.
std::string UtcText(absl::Time time);

}  // namespace ddprun

#endif  // DDPRUN_BASE_UTC_TEXT_H_
