#include "launcher/report/mask_secrets.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

using absl::string_view;

constexpr char kMask[] = "***";

// A token that is recognized by its first characters; the others are letters, digits, '_' and '-'.
struct Shape {
  string_view prefix;
  size_t min_rest;
};
constexpr Shape kShapes[] = {
    {"AKIA", 16},        {"ASIA", 16},   {"ghp_", 20},  {"gho_", 20},  {"ghu_", 20},  {"ghs_", 20}, {"ghr_", 20},
    {"github_pat_", 20}, {"glpat-", 16}, {"hf_", 20},   {"sk-", 20},   {"npm_", 30},  {"AIza", 30}, {"xoxa-", 10},
    {"xoxb-", 10},       {"xoxp-", 10},  {"xoxr-", 10}, {"xoxs-", 10}, {"xapp-", 10},
};
constexpr string_view kSlackHook = "hooks.slack.com/services/";
constexpr string_view kPemBegin = "-----BEGIN ";
constexpr string_view kPemEnd = "-----END ";
constexpr size_t kMinSecret = 6;  // a shorter value may be part of any text

bool IsTokenByte(char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-'; }
bool IsNameByte(char c) { return IsTokenByte(c) || c == '.'; }
bool IsQuote(char c) { return c == '"' || c == '\'' || c == '`'; }
bool EndsValue(char c) { return absl::ascii_isspace(c) || IsQuote(c) || absl::StrContains(",;&)]}\\", c); }

enum class NameKind { kPlain, kToken, kSecret };

NameKind KindOf(string_view name) {
  const std::string word = absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"_", ""}, {"-", ""}, {".", ""}});
  for (const string_view suffix : {"file", "path", "dir", "name", "length", "size", "type"}) {
    if (absl::EndsWith(word, suffix)) return NameKind::kPlain;
  }
  for (const string_view part : {"password", "passwd", "passphrase", "secret", "apikey", "accesskey", "privatekey",
                                 "accountkey", "authorization", "amzsignature"}) {
    if (absl::StrContains(word, part)) return NameKind::kSecret;
  }
  return absl::EndsWith(word, "token") ? NameKind::kToken : NameKind::kPlain;
}

bool IsPlaceholder(string_view value) {
  for (const string_view word : {"none", "null", "nil", "true", "false", "str", "bytes", "optional"}) {
    if (absl::EqualsIgnoreCase(value, word)) return true;
  }
  return value.empty();
}

// `colon`: "token: VALUE", which is also prose, and needs to look like a token.
bool IsSecret(NameKind kind, string_view value, bool colon) {
  if (IsPlaceholder(value)) return false;
  if (kind == NameKind::kSecret) return true;
  const bool code = value.front() == '<' || value.find_first_of("[(") != string_view::npos;
  const bool number = std::all_of(value.begin(), value.end(), absl::ascii_isdigit);
  const bool has_digit = std::any_of(value.begin(), value.end(), absl::ascii_isdigit);
  return !code && !number && (!colon || (value.size() >= 8 && has_digit));
}

class Masker {
 public:
  // `found` receives the parts of `text` that are replaced; may be null.
  explicit Masker(string_view text, std::vector<string_view>* found = nullptr) : text_(text), found_(found) {}

  std::string Run() && {
    while (at_ < text_.size()) {
      if (Pem() || Shaped() || Url() || Named()) continue;
      // What is no name is copied byte by byte, a name as a whole.
      size_t end = IsNameByte(text_[at_]) ? EndOf(at_, IsNameByte) : at_ + 1;
      // A key may follow a name or an escape sequence: "\n-----END PRIVATE KEY-----".
      for (const string_view mark : {kPemBegin, kPemEnd}) {
        const size_t dashes = mark.size() - 1;
        if (end - at_ > dashes && absl::StartsWith(text_.substr(end - dashes), mark)) end -= dashes;
      }
      Copy(end);
    }
    return std::move(out_);
  }

 private:
  template <typename Predicate>
  size_t EndOf(size_t from, Predicate in) const {
    while (from < text_.size() && in(text_[from])) ++from;
    return from;
  }
  bool StartsAt(string_view word) const {
    return text_[at_] == word.front() && absl::StartsWith(text_.substr(at_), word);
  }

  void Copy(size_t end) {
    absl::StrAppend(&out_, text_.substr(at_, end - at_));
    at_ = end;
  }
  void Mask(size_t end) {
    absl::StrAppend(&out_, kMask);
    if (found_ != nullptr) found_->push_back(text_.substr(at_, end - at_));
    at_ = end;
  }

  bool Pem() {
    const bool begins = StartsAt(kPemBegin);
    if (!begins && !StartsAt(kPemEnd)) return false;
    const size_t line_end = std::min(text_.find('\n', at_), text_.size());
    if (!absl::StrContains(text_.substr(at_, line_end - at_), "PRIVATE KEY-----")) return false;
    if (!begins) {
      MaskKeyBefore();
      Copy(line_end);
      return true;
    }
    Copy(at_ + kPemBegin.size());
    // Without its end, the rest may be the key.
    Mask(std::min(text_.find(kPemEnd, at_), text_.size()));
    return true;
  }

  // Masks the end of a key whose beginning was cut off: the last lines of `out_`.
  void MaskKeyBefore() {
    size_t start = out_.size();
    while (start > 0 && (absl::ascii_isalnum(out_[start - 1]) || absl::StrContains("+/=\\\r\n", out_[start - 1]))) {
      --start;
    }
    // The end of another line looks like a key, too.
    if (const size_t line = out_.find('\n', start); start > 0 && line != std::string::npos) start = line + 1;
    if (start == out_.size()) return;
    out_.resize(start);
    absl::StrAppend(&out_, kMask);
  }

  // Tokens of a known shape, at the start of a word.
  bool Shaped() {
    if (at_ > 0 && IsTokenByte(text_[at_ - 1])) return false;
    if (StartsAt(kSlackHook)) {
      Copy(at_ + kSlackHook.size());
      const size_t end = EndOf(at_, [](char c) { return IsTokenByte(c) || c == '/'; });
      if (end > at_) Mask(end);
      return true;
    }
    for (const Shape& shape : kShapes) {
      if (!StartsAt(shape.prefix)) continue;
      const size_t end = EndOf(at_, IsTokenByte);
      if (end - at_ < shape.prefix.size() + shape.min_rest) continue;
      Mask(end);
      return true;
    }
    if (!StartsAt("eyJ")) return false;
    const size_t end = EndOf(at_, IsNameByte);
    const string_view jwt = text_.substr(at_, end - at_);
    if (std::count(jwt.begin(), jwt.end(), '.') != 2) return false;
    Mask(end);
    return true;
  }

  // "://user:password@".
  bool Url() {
    if (!StartsAt("://")) return false;
    const size_t end = EndOf(at_ + 3, [](char c) { return !EndsValue(c) && c != '/' && c != '?' && c != '#'; });
    const string_view authority = text_.substr(at_, end - at_);
    const size_t host = authority.rfind('@');
    const size_t password = authority.find(':', 3);
    if (host == string_view::npos || password == string_view::npos || password > host) {
      Copy(at_ + 3);
      return true;
    }
    const size_t host_at = at_ + host;
    Copy(at_ + password + 1);
    Mask(host_at);
    return true;
  }

  // NAME=VALUE, "NAME": "VALUE", --name value, Authorization: Bearer VALUE.
  bool Named() {
    if (!IsNameByte(text_[at_])) return false;
    const size_t name_end = EndOf(at_, IsNameByte);
    const string_view name = text_.substr(at_, name_end - at_);
    // A token that is sent without the name of its header.
    const bool bearer = absl::EqualsIgnoreCase(name, "bearer");
    size_t value = name_end;
    const bool is_flag = absl::StartsWith(name, "--");
    if (value < text_.size() && text_[value] == '\\') ++value;  // JSON within a string
    if (value < text_.size() && IsQuote(text_[value])) ++value;
    const auto blank = [](char c) { return c == ' ' || c == '\t'; };
    const size_t separator = EndOf(value, blank);
    const bool colon = separator < text_.size() && text_[separator] == ':';
    if (colon || (separator < text_.size() && text_[separator] == '=')) {
      if (text_.substr(separator + 1, 1) == "=") return false;  // a comparison
      value = EndOf(separator + 1, blank);
    } else if ((is_flag || bearer) && separator > value) {
      value = separator;
    } else {
      return false;
    }
    // Last, because it takes the most time.
    const NameKind kind = bearer ? NameKind::kToken : KindOf(name);
    if (kind == NameKind::kPlain) return false;
    const bool escaped = value < text_.size() && text_[value] == '\\';
    if (escaped) ++value;
    size_t end;
    if (value < text_.size() && IsQuote(text_[value])) {
      const char quote = text_[value++];
      for (end = value; end < text_.size() && text_[end] != quote && text_[end] != '\n'; ++end) {
        if (text_[end] != '\\') continue;
        if (escaped && text_.substr(end + 1, 1) == string_view(&quote, 1)) break;
        if (!escaped) ++end;
      }
      end = std::min(end, text_.size());
    } else {
      end = EndOf(value, [](char c) { return !EndsValue(c); });
    }
    for (const string_view scheme : {"bearer", "basic", "token"}) {
      if (!absl::EqualsIgnoreCase(text_.substr(value, scheme.size()), scheme)) continue;
      const size_t after = EndOf(value + scheme.size(), blank);
      if (after == value + scheme.size()) continue;
      value = after;
      end = std::max(end, EndOf(value, [](char c) { return !EndsValue(c); }));
    }
    if (!IsSecret(kind, text_.substr(value, end - value), colon || bearer)) return false;
    Copy(value);
    Mask(end);
    return true;
  }

  const string_view text_;
  std::vector<string_view>* const found_;
  size_t at_ = 0;
  std::string out_;
};

// Masks a part of `value` where a text was cut: its beginning before the end of the line or "...", or its end after the
// start of the line.
std::string WithoutPart(string_view value, string_view line) {
  const string_view dots = absl::EndsWith(line, "...") ? "..." : "";
  line.remove_suffix(dots.size());
  for (size_t n = std::min(line.size(), value.size() - 1); n >= kMinSecret; --n) {
    if (absl::EndsWith(line, value.substr(0, n))) return absl::StrCat(line.substr(0, line.size() - n), kMask, dots);
    if (absl::StartsWith(line, value.substr(value.size() - n))) return absl::StrCat(kMask, line.substr(n), dots);
  }
  return absl::StrCat(line, dots);
}

}  // namespace

std::string MaskSecrets(absl::string_view text) { return Masker(text).Run(); }

SecretMask::SecretMask(const std::vector<std::string>& given) {
  // `whole`: blanks and quotes belong to the value, too.
  const auto add = [this](const std::string& word, bool whole) {
    std::string text = word;
    for (char& c : text) {
      if (whole && EndsValue(c)) c = '_';
    }
    std::vector<string_view> found;
    Masker(text, &found).Run();
    for (const string_view secret : found) {
      if (secret.size() >= kMinSecret) values_.push_back(word.substr(secret.data() - text.data(), secret.size()));
    }
  };
  for (size_t i = 0; i < given.size(); ++i) {
    add(given[i], false);
    add(given[i], true);
    // "--api-key VALUE" is two words.
    const bool is_value = i > 0 && absl::StartsWith(given[i - 1], "--") && !absl::StrContains(given[i - 1], '=');
    if (is_value) add(absl::StrCat(given[i - 1], "=", given[i]), true);
  }
  // A value may contain another one.
  std::sort(values_.begin(), values_.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  values_.erase(std::unique(values_.begin(), values_.end()), values_.end());
}

std::string SecretMask::Mask(absl::string_view text) const {
  std::string masked = MaskSecrets(text);
  for (const std::string& value : values_) {
    absl::StrReplaceAll({{value, kMask}}, &masked);
    const string_view start = string_view(value).substr(0, kMinSecret);
    const string_view end = string_view(value).substr(value.size() - kMinSecret);
    if (!absl::StrContains(masked, start) && !absl::StrContains(masked, end)) continue;
    std::vector<std::string> lines;
    for (const string_view line : absl::StrSplit(masked, '\n')) lines.push_back(WithoutPart(value, line));
    masked = absl::StrJoin(lines, "\n");
  }
  return masked;
}

void SecretMask::Mask(google::protobuf::Message* message) const {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  const auto masked = [this](const std::string& text) { return Mask(CleanText(text)); };
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? reflection.FieldSize(*message, field) : 0;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      if (!field->is_repeated()) reflection.SetString(message, field, masked(reflection.GetString(*message, field)));
      for (int i = 0; i < count; ++i) {
        reflection.SetRepeatedString(message, field, i, masked(reflection.GetRepeatedString(*message, field, i)));
      }
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (!field->is_repeated()) Mask(reflection.MutableMessage(message, field));
      for (int i = 0; i < count; ++i) Mask(reflection.MutableRepeatedMessage(message, field, i));
    }
  }
}

}  // namespace ddprun::launcher
