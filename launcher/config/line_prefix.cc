#include "launcher/config/line_prefix.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace ddprun::launcher {
namespace {

std::optional<std::string> ValueOf(absl::string_view macro, const LinePrefixValues& values) {
  if (macro == "role_name") return values.role_name;
  if (macro == "local_rank") return absl::StrCat(values.local_rank);
  if (macro == "rank") return absl::StrCat(values.rank);
  if (macro == "hostname") return values.hostname;
  if (macro == "time") return kTimeMacro;
  return std::nullopt;
}

}  // namespace

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
    if (const std::optional<std::string> value = ValueOf(text.substr(0, end), values); value && closed) {
      absl::StrAppend(&expanded, *value);
      text.remove_prefix(end + (braces ? 1 : 0));
    } else {
      absl::StrAppend(&expanded, braces ? "${" : "$");
    }
  }
}

}  // namespace ddprun::launcher
