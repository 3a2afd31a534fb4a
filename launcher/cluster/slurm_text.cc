#include "launcher/cluster/slurm_text.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"

namespace ddprun::launcher {

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
