#include "launcher/config/output_filter.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "launcher/config/flag_value.h"
#include "launcher/config/node_count.h"

namespace ddprun::launcher {

absl::StatusOr<std::set<int32_t>> ParseLocalRanks(absl::string_view text) {
  std::set<int32_t> ranks;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    const absl::StatusOr<int64_t> rank = ParseInteger(absl::StripAsciiWhitespace(word), 0, kMaxProcesses - 1);
    if (!rank.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(Quoted(text), " is not a list of local ranks such as 0,1: ", rank.status().message()));
    }
    ranks.insert(static_cast<int32_t>(*rank));
  }
  return ranks;
}

std::vector<std::string> ParseLineFilters(absl::string_view text) {
  std::vector<std::string> filters = {""};
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      filters.back().push_back(text[i]);
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      filters.back().push_back(',');
      ++i;
    } else {
      filters.emplace_back();
    }
  }
  std::erase(filters, "");
  return filters;
}

}  // namespace ddprun::launcher
