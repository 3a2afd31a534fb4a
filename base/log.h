#ifndef DDPRUN_BASE_LOG_H_
#define DDPRUN_BASE_LOG_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/steady_time.h"

// A program's log: lines on standard error.
namespace ddprun {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Sets the program's name shown in every line ("ddprun", "rendezvousd") and the lowest level shown. Call once, before
// other threads exist. Defaults: "ddprun" and kWarning.
void InitLog(absl::string_view program, LogLevel lowest);

// Makes Log() non-blocking. Before this call, Log() writes the line before it returns, and may block. Call this before
// signals are blocked, so that the program can be ended while it is blocked in Log().
void StartLogThread();

// Waits until all log lines are written; returns false if they are not by `deadline`. For the end of the program.
bool FlushLog(SteadyTime deadline);

// Parses "DEBUG", "INFO", "WARNING", "ERROR" in any case (torchrun's LOGLEVEL); returns `fallback` for anything else.
LogLevel ParseLogLevel(absl::string_view text, LogLevel fallback);

// Writes one line to standard error. Line ends and control characters in `text` are escaped, so that foreign text can't
// forge log lines. Thread-safe. If the reader is slow, up to 1 MiB is buffered; further lines are dropped and counted.
void Log(LogLevel level, absl::string_view text);

// Writes `text` (the status line, the failure summary) to standard error unchanged, in order with the lines of Log,
// regardless of the level. REQUIRES: foreign parts of it were cleaned (text.h). Thread-safe.
void LogVerbatim(absl::string_view text);

// Formats a line including the newline. On a terminal: "ddprun: text", with "warning: " or "error: " before the text;
// elsewhere: "2026-11-22T01:30:00.123Z INFO node-a ddprun: text".
std::string FormatLogLine(bool terminal, absl::string_view program, absl::string_view host, LogLevel level,
                          absl::Time time, absl::string_view text);

}  // namespace ddprun

#endif  // DDPRUN_BASE_LOG_H_
