#include "launcher/config/output_filter.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text.h"
#include "launcher/config/flag_value.h"
#include "launcher/config/node_count.h"
#include "rendezvous/core/limits.h"

namespace ddprun::launcher {
namespace {

constexpr char kGlobal[] = "global:";

}  // namespace

std::string RankFilter::ToString() const { return absl::StrCat(global ? kGlobal : "", absl::StrJoin(ranks, ",")); }

absl::StatusOr<RankFilter> ParseRankFilter(absl::string_view text) {
  RankFilter filter;
  absl::string_view list = text;
  filter.global = absl::ConsumePrefix(&list, kGlobal);
  const int64_t max = filter.global ? int64_t{rendezvous::kMaxNodes} * kMaxProcesses - 1 : kMaxProcesses - 1;
  for (const absl::string_view word : absl::StrSplit(list, ',')) {
    const absl::StatusOr<int64_t> rank = ParseInteger(absl::StripAsciiWhitespace(word), 0, max);
    if (!rank.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(Quoted(text),
                       " is not a list of local ranks such as 0,1, or of ranks of the job such as "
                       "global:0,8: ",
                       rank.status().message()));
    }
    filter.ranks.insert(static_cast<int32_t>(*rank));
  }
  return filter;
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
