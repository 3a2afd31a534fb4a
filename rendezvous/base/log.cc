#include "rendezvous/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>

#include "absl/strings/ascii.h"

namespace ddprun {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::err;
}

std::shared_ptr<spdlog::logger> NewLogger(absl::string_view program, LogLevel lowest) {
  auto logger =
      std::make_shared<spdlog::logger>(std::string(program), std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%n: %v");
  logger->set_level(ToSpdlog(lowest));
  logger->flush_on(spdlog::level::debug);
  return logger;
}

std::shared_ptr<spdlog::logger>& Logger() {
  static auto& logger = *new std::shared_ptr<spdlog::logger>(NewLogger("ddprun", LogLevel::kWarning));
  return logger;
}

}  // namespace

void InitLog(absl::string_view program, LogLevel lowest) { Logger() = NewLogger(program, lowest); }

LogLevel ParseLogLevel(absl::string_view text, LogLevel fallback) {
  const std::string upper = absl::AsciiStrToUpper(std::string(text));
  if (upper == "DEBUG") return LogLevel::kDebug;
  if (upper == "INFO") return LogLevel::kInfo;
  if (upper == "WARNING" || upper == "WARN") return LogLevel::kWarning;
  if (upper == "ERROR" || upper == "CRITICAL" || upper == "FATAL") return LogLevel::kError;
  return fallback;
}

void Log(LogLevel level, absl::string_view text) { Logger()->log(ToSpdlog(level), std::string(text)); }

}  // namespace ddprun
