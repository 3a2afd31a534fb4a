#ifndef DDPRUN_BASE_UTC_TEXT_H_
#define DDPRUN_BASE_UTC_TEXT_H_

#include <string>

#include "absl/time/time.h"

namespace ddprun {

// "2026-11-22T01:30:00.123Z": the time in lines of logs. Thread-safe.
std::string UtcText(absl::Time time);

}  // namespace ddprun

#endif  // DDPRUN_BASE_UTC_TEXT_H_
