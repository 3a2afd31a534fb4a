#include "launcher/report/last_lines.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

// In lower case. " line " covers shells ("sh: line 3: ...") and Perl's die.
constexpr absl::string_view kErrorWords[] = {
    "error",  "exception", "fatal",  "panic",   "abort",  "fail",      "assert",   "terminate called", "what():",
    "denied", "not found", "cannot", "no such", " line ", "no space ", "exceeded", "killed",           "segmentation",
};

// Length of the escape sequence (ECMA-48) at the start of `bytes`, which starts with ESC.
size_t EscapeLength(absl::string_view bytes) {
  size_t i = 1;
  const auto skip = [&](char first, char last) {
    while (i < bytes.size() && bytes[i] >= first && bytes[i] <= last) ++i;
  };
  if (i < bytes.size() && bytes[i] == '[') {
    ++i;
    skip('\x20', '\x3f');
  } else if (i < bytes.size() && bytes[i] == ']') {  // a title or link, to BEL or ESC backslash
    const size_t end = bytes.find_first_of("\a\x1b", i);
    if (end == absl::string_view::npos) return bytes.size();
    i = end + (bytes[end] == '\a' ? 0 : 1);
  } else {
    skip('\x20', '\x2f');
  }
  return std::min(i + 1, bytes.size());
}

std::string WithoutEscapes(absl::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t plain = std::min(bytes.find('\x1b'), bytes.size());
    absl::StrAppend(&text, bytes.substr(0, plain));
    bytes.remove_prefix(plain);
    if (!bytes.empty()) bytes.remove_prefix(EscapeLength(bytes));
  }
  return text;
}

// Returns the part of a line that a terminal shows if the line was overwritten from its start.
absl::string_view LastState(absl::string_view line) {
  while (absl::EndsWith(line, "\r")) line.remove_suffix(1);
  const size_t start = line.rfind('\r');
  return start == absl::string_view::npos ? line : line.substr(start + 1);
}

bool ReportsError(absl::string_view line) {
  const std::string text = absl::AsciiStrToLower(line);
  return !absl::StrContains(text, "warning") &&
         std::any_of(std::begin(kErrorWords), std::end(kErrorWords),
                     [&](absl::string_view word) { return absl::StrContains(text, word); });
}

}  // namespace

LastLines ReadLastLines(absl::string_view bytes, absl::string_view known) {
  const std::string plain = WithoutEscapes(bytes);
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(plain, '\n')) {
    const std::string clean = CleanText(LastState(line));
    const absl::string_view shown = absl::StripTrailingAsciiWhitespace(Utf8Prefix(clean, LastLines::kMaxLineBytes));
    if (!shown.empty()) lines.emplace_back(shown);
  }
  if (lines.size() > LastLines::kMaxLines) lines.erase(lines.begin(), lines.end() - LastLines::kMaxLines);

  LastLines result;
  bool ignored = false;  // within the report of an exception that Python ignored
  for (const std::string& line : lines) {
    const absl::string_view text = absl::StripLeadingAsciiWhitespace(line);
    if (text.size() < line.size() && !absl::StartsWith(text, "what():")) continue;
    if (absl::StartsWith(text, "Exception ignored ")) {
      ignored = true;
    } else if (ignored) {
      ignored = absl::StartsWith(text, "Traceback ");
    } else if (ReportsError(text) && (known.empty() || !absl::StrContains(text, known))) {
      result.error = std::string(text);
    }
  }
  if (!lines.empty()) result.last = std::string(absl::StripLeadingAsciiWhitespace(lines.back()));
  result.text = absl::StrJoin(lines, "\n");
  return result;
}

}  // namespace ddprun::launcher
