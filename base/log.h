#ifndef DDPRUN_BASE_LOG_H_
#define DDPRUN_BASE_LOG_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/steady_time.h"

// The log of a program: lines on standard error.
namespace ddprun {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Names the program in every line ("ddprun", "rendezvousd") and chooses the lowest level shown. Call once, before
// other threads exist; without a call the name is "ddprun" and the level kWarning.
void InitLog(absl::string_view program, LogLevel lowest);

// From here on nobody who logs ever waits for whoever reads standard error. Until then a line is written before Log
// returns, which can block: call it before signals are blocked, so that the program can be ended while it is stuck.
void StartLogThread();

// Waits until all that was logged is written; false if it is not at `deadline`. For the end of the program.
bool FlushLog(SteadyTime deadline);

// Reads "DEBUG", "INFO", "WARNING", "ERROR" in any case (torchrun's LOGLEVEL); anything else is `fallback`.
LogLevel ParseLogLevel(absl::string_view text, LogLevel fallback);

// Writes one line to standard error. Line ends and control characters in `text` are shown escaped, so that foreign
// text can't make up lines of its own. Thread-safe. If the reader does not read, up to 1 MiB is kept and later lines
// are dropped and counted.
void Log(LogLevel level, absl::string_view text);

// Writes `text` to standard error as it is, in order with the lines of Log, whatever the level: the status line, the
// failure summary. REQUIRES: foreign parts of it were cleaned (text.h). Thread-safe.
void LogVerbatim(absl::string_view text);

// A whole line, with its end. On a terminal "ddprun: text", with "warning: " or "error: " before the text; elsewhere
// "2026-11-22T01:30:00.123Z INFO node-a ddprun: text".
std::string FormatLogLine(bool terminal, absl::string_view program, absl::string_view host, LogLevel level,
                          absl::Time time, absl::string_view text);

}  // namespace ddprun

#endif  // DDPRUN_BASE_LOG_H_
