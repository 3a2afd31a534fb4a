#include "launcher/config/output_settings.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text.h"
#include "launcher/config/flag_value.h"
#include "rendezvous/core/limits.h"

namespace ddprun::launcher {
namespace {

constexpr char kGlobal[] = "global:";

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

std::optional<std::string> MacroValue(absl::string_view macro, const LinePrefixValues& values) {
  if (macro == "role_name") return values.role_name;
  if (macro == "local_rank") return absl::StrCat(values.local_rank);
  if (macro == "rank") return absl::StrCat(values.rank);
  if (macro == "hostname") return values.hostname;
  if (macro == "time") return kTimeMacro;
  return std::nullopt;
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

std::string ExpandLinePrefix(absl::string_view text, const LinePrefixValues& values) {
  std::string expanded;
  while (true) {
    const size_t dollar = text.find('$');
    absl::StrAppend(&expanded, text.substr(0, dollar));
    if (dollar == absl::string_view::npos) return expanded;
    text.remove_prefix(dollar + 1);
    if (absl::ConsumePrefix(&text, "$")) {
      expanded.push_back('$');
      continue;
    }
    const bool braces = absl::ConsumePrefix(&text, "{");
    size_t end = 0;
    while (end < text.size() && (absl::ascii_isalnum(text[end]) || text[end] == '_')) ++end;
    const bool closed = !braces || (end < text.size() && text[end] == '}');
    if (const std::optional<std::string> value = MacroValue(text.substr(0, end), values); value && closed) {
      absl::StrAppend(&expanded, *value);
      text.remove_prefix(end + (braces ? 1 : 0));
    } else {
      absl::StrAppend(&expanded, braces ? "${" : "$");
    }
  }
}

}  // namespace ddprun::launcher
