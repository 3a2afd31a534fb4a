#include "base/log.h"

#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/process.h"
#include "base/steady_time.h"
#include "base/stream_writer.h"
#include "base/text.h"

namespace ddprun {
namespace {

constexpr size_t kMaxWaitingBytes = 1 << 20;

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return "DEBUG";
    case LogLevel::kInfo: return "INFO";
    case LogLevel::kWarning: return "WARNING";
    case LogLevel::kError: return "ERROR";
  }
  return "ERROR";
}

// Never destroyed: threads that outlive main may still log.
struct Logger {
  // Set before other threads exist.
  std::string program = "ddprun";
  LogLevel lowest = LogLevel::kWarning;
  bool terminal = isatty(STDERR_FILENO) == 1;
  std::string host = Hostname();
  StreamWriter* writer = nullptr;

  Mutex mutex;  // keeps lines whole while `writer` is null

  std::string Line(LogLevel level, absl::string_view text) const {
    return FormatLogLine(terminal, program, host, level, absl::Now(), text);
  }
};

Logger& TheLogger() {
  static Logger& logger = *new Logger;
  return logger;
}

}  // namespace

void InitLog(absl::string_view program, LogLevel lowest) {
  Logger& logger = TheLogger();
  logger.program = std::string(program);
  logger.lowest = lowest;
}

void StartLogThread() {
  Logger& logger = TheLogger();
  if (logger.writer != nullptr) return;
  StreamWriter::Options options;
  options.fd = STDERR_FILENO;
  options.max_bytes = kMaxWaitingBytes;
  options.gap = [&logger](int64_t lines) {
    return logger.Line(LogLevel::kWarning, absl::StrCat(Counted(lines, "line"), " dropped: stderr was blocked"));
  };
  logger.writer = new StreamWriter(std::move(options));
}

bool FlushLog(SteadyTime deadline) {
  StreamWriter* const writer = TheLogger().writer;
  return writer == nullptr || writer->Flush(deadline);
}

LogLevel ParseLogLevel(absl::string_view text, LogLevel fallback) {
  const std::string upper = absl::AsciiStrToUpper(std::string(text));
  if (upper == "DEBUG") return LogLevel::kDebug;
  if (upper == "INFO") return LogLevel::kInfo;
  if (upper == "WARNING" || upper == "WARN") return LogLevel::kWarning;
  if (upper == "ERROR" || upper == "CRITICAL" || upper == "FATAL") return LogLevel::kError;
  return fallback;
}

void Log(LogLevel level, absl::string_view text) {
  const Logger& logger = TheLogger();
  if (level >= logger.lowest) LogVerbatim(logger.Line(level, text));
}

void LogVerbatim(absl::string_view text) {
  Logger& logger = TheLogger();
  if (logger.writer != nullptr) return logger.writer->Write(text);
  MutexLock lock(&logger.mutex);
  (void)WriteWhole(STDERR_FILENO, text);
}

std::string FormatLogLine(bool terminal, absl::string_view program, absl::string_view host, LogLevel level,
                          absl::Time time, absl::string_view text) {
  const std::string clean = EscapeControls(text);
  if (!terminal) {
    return absl::StrCat(UtcText(time), " ", LevelName(level), " ", host, " ", program, ": ", clean, "\n");
  }
  const char* const rank = level == LogLevel::kError ? "error: " : level == LogLevel::kWarning ? "warning: " : "";
  return absl::StrCat(program, ": ", rank, clean, "\n");
}

}  // namespace ddprun
