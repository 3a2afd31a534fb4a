#include "base/text.h"

#include <sys/random.h>

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace ddprun {
namespace {

bool IsContinuation(char c) { return (static_cast<uint8_t>(c) & 0xc0) == 0x80; }

// U+0080 to U+009F, which terminals also treat as control characters.
bool IsC1Control(absl::string_view character) {
  return character.size() == 2 && static_cast<uint8_t>(character[0]) == 0xc2 &&
         static_cast<uint8_t>(character[1]) < 0xa0;
}

constexpr size_t kMaxQuotedBytes = 80;

// Characters that are copied from web pages and documents into commands.
struct Copied {
  absl::string_view character;
  absl::string_view name;
  absl::string_view escape;  // if it is invisible
};
constexpr Copied kCopied[] = {
    {"\u2010", "a hyphen that is not ASCII", ""},
    {"\u2011", "a no-break hyphen", ""},
    {"\u2012", "a figure dash", ""},
    {"\u2013", "an en dash", ""},
    {"\u2014", "an em dash", ""},
    {"\u2212", "a minus sign that is not ASCII", ""},
    {"\u2018", "a typographic quotation mark", ""},
    {"\u2019", "a typographic quotation mark", ""},
    {"\u201c", "a typographic quotation mark", ""},
    {"\u201d", "a typographic quotation mark", ""},
    {"\u201e", "a typographic quotation mark", ""},
    {"\u00a0", "a no-break space", "\\u00a0"},
    {"\u2007", "a no-break space", "\\u2007"},
    {"\u202f", "a no-break space", "\\u202f"},
    {"\u3000", "a wide space", "\\u3000"},
    {"\u00ad", "a soft hyphen", "\\u00ad"},
    {"\u200b", "a zero-width space", "\\u200b"},
    {"\u2060", "a zero-width space", "\\u2060"},
    {"\ufeff", "a byte order mark", "\\ufeff"},
};

// The entry of the character at the start of `text`; null if it has none.
const Copied* FindCopied(absl::string_view text) {
  if (absl::ascii_isascii(text[0])) return nullptr;
  const auto starts = [text](const Copied& copied) { return absl::StartsWith(text, copied.character); };
  const Copied* const found = std::find_if(std::begin(kCopied), std::end(kCopied), starts);
  return found == std::end(kCopied) ? nullptr : found;
}

}  // namespace

size_t Utf8CharacterLength(absl::string_view bytes) {
  if (bytes.empty()) return 0;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  size_t length = 0;
  if (first >= 0xc2 && first <= 0xdf) length = 2;
  if (first >= 0xe0 && first <= 0xef) length = 3;
  if (first >= 0xf0 && first <= 0xf4) length = 4;
  if (length == 0 || bytes.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!IsContinuation(bytes[i])) return 0;
  }
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) > 0x9f) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) > 0x8f) return 0;
  return length;
}

absl::string_view Utf8Prefix(absl::string_view text, size_t max_bytes) {
  size_t end = std::min(text.size(), max_bytes);
  while (end > 0 && end < text.size() && IsContinuation(text[end])) --end;
  return text.substr(0, end);
}

absl::string_view Utf8Suffix(absl::string_view text, size_t max_bytes) {
  size_t start = text.size() - std::min(text.size(), max_bytes);
  while (start < text.size() && IsContinuation(text[start])) ++start;
  return text.substr(start);
}

std::string CleanText(absl::string_view bytes) {
  std::string clean;
  clean.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t length = Utf8CharacterLength(bytes);
    const char c = bytes[0];
    if (length == 0) {
      clean.push_back('?');
    } else if (length > 1) {
      if (IsC1Control(bytes.substr(0, length))) {
        clean.push_back('?');
      } else {
        clean.append(bytes.data(), length);
      }
    } else if (c == '\r') {
      if (bytes.size() < 2 || bytes[1] != '\n') clean.push_back('\n');
    } else {
      clean.push_back(absl::ascii_iscntrl(c) && c != '\n' && c != '\t' ? '?' : c);
    }
    bytes.remove_prefix(length == 0 ? 1 : length);
  }
  return clean;
}

std::string EscapeControls(absl::string_view bytes) {
  std::string escaped;
  escaped.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t length = Utf8CharacterLength(bytes);
    const absl::string_view character = bytes.substr(0, length == 0 ? 1 : length);
    if (length > 1 && !IsC1Control(character)) {
      escaped.append(character.data(), length);
    } else if (length == 1 && !absl::ascii_iscntrl(bytes[0])) {
      escaped.push_back(bytes[0]);
    } else if (bytes[0] == '\n') {
      escaped.append("\\n");
    } else if (bytes[0] == '\r') {
      escaped.append("\\r");
    } else if (bytes[0] == '\t') {
      escaped.append("\\t");
    } else {
      for (const char c : character) {
        absl::StrAppend(&escaped, "\\x", absl::Hex(static_cast<uint8_t>(c), absl::kZeroPad2));
      }
    }
    bytes.remove_prefix(character.size());
  }
  return escaped;
}

std::string OneLine(absl::string_view bytes, size_t max_bytes) {
  assert(max_bytes >= 3);
  std::string line;
  bool blank_pending = false;
  for (const char c : CleanText(bytes)) {
    if (c == '\n' || c == '\t') {
      blank_pending = true;
      continue;
    }
    if (blank_pending && !line.empty() && line.back() != ' ' && c != ' ') line.push_back(' ');
    blank_pending = false;
    line.push_back(c);
  }
  line = std::string(absl::StripAsciiWhitespace(line));
  if (line.size() <= max_bytes) return line;
  return absl::StrCat(Utf8Prefix(line, max_bytes - 3), "...");
}

std::string Visible(absl::string_view bytes, size_t max_bytes) {
  assert(max_bytes >= 3);
  std::string visible;
  for (size_t i = 0; i < bytes.size() && visible.size() <= max_bytes;) {
    const absl::string_view rest = bytes.substr(i);
    const absl::string_view character = rest.substr(0, std::max<size_t>(1, Utf8CharacterLength(rest)));
    const Copied* const copied = FindCopied(rest);
    const bool invisible = copied != nullptr && !copied->escape.empty();
    absl::StrAppend(&visible, invisible ? copied->escape : EscapeControls(character));
    i += character.size();
  }
  if (visible.size() <= max_bytes) return visible;
  return absl::StrCat(Utf8Prefix(visible, max_bytes - 3), "...");
}

std::string Quoted(absl::string_view text) {
  const std::string quoted = absl::StrCat("'", Visible(text, kMaxQuotedBytes), "'");
  for (; !text.empty(); text.remove_prefix(1)) {
    if (const Copied* const copied = FindCopied(text)) return absl::StrCat(quoted, " (with ", copied->name, ")");
  }
  return quoted;
}

std::string CutMiddle(absl::string_view text, size_t max_bytes) {
  assert(max_bytes >= 256);
  if (text.size() <= max_bytes) return std::string(text);
  const size_t room = max_bytes - 64;  // leaves room for the line in between
  const absl::string_view head = Utf8Prefix(text, room / 4);
  const absl::string_view tail = Utf8Suffix(text, room - room / 4);
  return absl::StrCat(head, "\n... ", text.size() - head.size() - tail.size(), " bytes left out ...\n", tail);
}

bool IsUtf8(absl::string_view bytes) {
  while (!bytes.empty()) {
    const size_t length = Utf8CharacterLength(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

bool HasControl(absl::string_view bytes) {
  return bytes.find_first_of("\n\t") != absl::string_view::npos || CleanText(bytes) != bytes;
}

namespace {

constexpr size_t kMaxRanges = 8;

void SortUnique(std::vector<int32_t>* numbers) {
  std::sort(numbers->begin(), numbers->end());
  numbers->erase(std::unique(numbers->begin(), numbers->end()), numbers->end());
}

}  // namespace

std::string RangesText(std::vector<int32_t> numbers) {
  SortUnique(&numbers);
  std::vector<std::string> ranges;
  for (size_t first = 0; first < numbers.size();) {
    if (ranges.size() == kMaxRanges) {
      return absl::StrCat(absl::StrJoin(ranges, ", "), ", ... (", numbers.size(), " in all)");
    }
    size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    ranges.push_back(first == last ? absl::StrCat(numbers[first]) : absl::StrCat(numbers[first], "-", numbers[last]));
    first = last + 1;
  }
  return absl::StrJoin(ranges, ", ");
}

std::string RanksText(std::vector<int32_t> ranks, int32_t base_rank) {
  if (ranks.empty()) return "no rank";
  SortUnique(&ranks);
  for (int32_t& rank : ranks) rank += base_rank;
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", RangesText(ranks));
}

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

absl::string_view GrpcCause(absl::string_view message) {
  for (const absl::string_view wrapper :
       {"Failed to connect to remote host: ", "recvmsg:", "sendmsg:", "last error: "}) {
    const size_t at = message.rfind(wrapper);
    if (at != absl::string_view::npos) message.remove_prefix(at + wrapper.size());
  }
  // "UNAVAILABLE: ipv4:127.0.0.1:1: Socket closed".
  for (const absl::string_view family : {"ipv4:", "ipv6:"}) {
    const size_t at = message.rfind(family);
    const size_t end = at == absl::string_view::npos ? at : message.find(": ", at);
    if (end != absl::string_view::npos) message.remove_prefix(end + 2);
  }
  return message;
}

std::string RandomId() {
  char bytes[16];
  // Requests of up to 256 bytes are neither interrupted nor cut short (getrandom(2)).
  (void)!getrandom(bytes, sizeof bytes, 0);
  return absl::BytesToHexString(absl::string_view(bytes, sizeof bytes));
}

}  // namespace ddprun
