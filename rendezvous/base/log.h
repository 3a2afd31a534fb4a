#ifndef DDPRUN_RENDEZVOUS_BASE_LOG_H_
#define DDPRUN_RENDEZVOUS_BASE_LOG_H_

#include "absl/strings/string_view.h"

namespace ddprun {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Names the program at the start of every line ("ddprun", "rendezvousd") and chooses the lowest level shown.
// Call once, before other threads exist; without a call the name is "ddprun" and the level kWarning.
void InitLog(absl::string_view program, LogLevel lowest);

// Reads "DEBUG", "INFO", "WARNING", "ERROR" in any case (torchrun's LOGLEVEL); anything else is `fallback`.
LogLevel ParseLogLevel(absl::string_view text, LogLevel fallback);

// Writes one line to stderr, unbuffered and whole. Thread-safe. Line ends inside `text` start further lines.
void Log(LogLevel level, absl::string_view text);

}  // namespace ddprun

#endif  // DDPRUN_RENDEZVOUS_BASE_LOG_H_
