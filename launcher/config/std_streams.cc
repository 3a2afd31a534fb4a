#include "launcher/config/std_streams.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "launcher/config/flag_value.h"
#include "launcher/config/node_count.h"

namespace ddprun::launcher {
namespace {

std::optional<StdStreams> ReadStreams(absl::string_view text) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '3') return std::nullopt;
  const int bits = text[0] - '0';
  return StdStreams{(bits & 1) != 0, (bits & 2) != 0};
}

absl::Status NotAChoice(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(Quoted(text), " is neither 0 (none), 1 (stdout), 2 (stderr), 3 (both) nor a map such as 0:3,1:1",
                   why.empty() ? "" : ": ", why));
}

}  // namespace

StdStreams StreamChoice::For(int32_t local_rank) const {
  const auto named = by_local_rank_.find(local_rank);
  return named != by_local_rank_.end() ? named->second : others_;
}

bool StreamChoice::any() const {
  return others_.any() || std::any_of(by_local_rank_.begin(), by_local_rank_.end(),
                                      [](const auto& named) { return named.second.any(); });
}

absl::StatusOr<StreamChoice> ParseStreamChoice(absl::string_view text) {
  if (const std::optional<StdStreams> all = ReadStreams(text)) return StreamChoice(*all);
  std::map<int32_t, StdStreams> by_local_rank;
  for (const absl::string_view pair : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(pair, absl::MaxSplits(':', 1));
    if (pair.find(':') == absl::string_view::npos) return NotAChoice(text, "");
    const absl::StatusOr<int64_t> rank = ParseInteger(parts.first, 0, kMaxProcesses - 1);
    if (!rank.ok()) return NotAChoice(text, absl::StrCat("the local rank ", rank.status().message()));
    const std::optional<StdStreams> streams = ReadStreams(parts.second);
    if (!streams) return NotAChoice(text, absl::StrCat(Quoted(parts.second), " is not 0, 1, 2 or 3"));
    if (!by_local_rank.emplace(static_cast<int32_t>(*rank), *streams).second) {
      return NotAChoice(text, absl::StrCat("local rank ", *rank, " is named twice"));
    }
  }
  return StreamChoice(std::move(by_local_rank));
}

}  // namespace ddprun::launcher
