#include "launcher/core/slurm_text.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace ddprun::launcher {

std::optional<absl::Duration> ReadKillWait(absl::string_view slurm_conf) {
  std::optional<absl::Duration> found;
  for (absl::string_view line : absl::StrSplit(slurm_conf, '\n')) {
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits('=', 1));
    int seconds = 0;
    if (absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(parts.first), "KillWait") &&
        absl::SimpleAtoi(parts.second, &seconds) && seconds >= 0) {
      found = absl::Seconds(seconds);
    }
  }
  return found;
}

std::optional<absl::Time> ReadEndTime(absl::string_view squeue, absl::string_view job, absl::TimeZone zone) {
  for (absl::string_view line : absl::StrSplit(squeue, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() != 3 || words[0] != job || words[2] == "UNLIMITED") continue;
    absl::Time end;
    std::string error;
    if (absl::ParseTime("%Y-%m-%dT%H:%M:%S", words[1], zone, &end, &error)) return end;
  }
  return std::nullopt;
}

}  // namespace ddprun::launcher
