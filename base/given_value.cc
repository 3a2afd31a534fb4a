#include "base/given_value.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace ddprun {

absl::string_view TrimValue(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (text.size() < 2 || (text[0] != '\'' && text[0] != '"')) return text;
  if (text.find(text[0], 1) != text.size() - 1) return text;
  return absl::StripAsciiWhitespace(text.substr(1, text.size() - 2));
}

absl::StatusOr<std::string> ExpandHome(absl::string_view path, absl::string_view home) {
  if (path.empty() || path[0] != '~') return std::string(path);
  const absl::string_view rest = path.substr(1);
  if (!rest.empty() && rest[0] != '/') {
    return absl::InvalidArgumentError(absl::StrCat(
        Quoted(path), ": only your own home, ~/, is expanded: write the whole path, or ./~ if the name begins so"));
  }
  if (home.empty()) return absl::InvalidArgumentError(absl::StrCat(Quoted(path), ": HOME is not set: write the path"));
  return absl::StrCat(home, rest);
}

}  // namespace ddprun
