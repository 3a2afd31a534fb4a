#include "launcher/cluster/task_counts.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text.h"
#include "launcher/config/flag_value.h"
#include "rendezvous/core/limits.h"

namespace ddprun::launcher {
namespace {

constexpr int64_t kMaxTasks = 1'000'000;

absl::Status NotCounts(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is not a list of counts such as 2(x3),1: ", why));
}

}  // namespace

absl::StatusOr<std::vector<int>> ExpandTaskCounts(absl::string_view text) {
  std::vector<int> counts;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    int64_t times = 1;
    if (absl::ConsumeSuffix(&part, ")")) {
      const size_t open = part.find("(x");
      if (open == absl::string_view::npos) return NotCounts(text, "a ')' without a '(x'");
      const absl::StatusOr<int64_t> number = ParseInteger(part.substr(open + 2), 1, rendezvous::kMaxNodes);
      if (!number.ok()) return NotCounts(text, number.status().message());
      times = *number;
      part = part.substr(0, open);
    }
    const absl::StatusOr<int64_t> count = ParseInteger(part, 1, kMaxTasks);
    if (!count.ok()) return NotCounts(text, count.status().message());
    if (counts.size() + times > rendezvous::kMaxNodes) return NotCounts(text, "it is for too many nodes");
    counts.insert(counts.end(), times, static_cast<int>(*count));
  }
  return counts;
}

}  // namespace ddprun::launcher
