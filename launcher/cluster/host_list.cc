#include "launcher/cluster/host_list.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/config/flag_value.h"
#include "rendezvous/core/limits.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxDigits = 18;  // so that every number fits in 64 bits
constexpr int64_t kMaxHosts = rendezvous::kMaxNodes;

struct Range {
  int64_t first = 0;
  int64_t last = 0;
  size_t width = 1;  // number of digits, padded with zeros
};

// One or more ranges in brackets, after some text: "node[1-3,7]".
struct Bracket {
  std::string text_before;
  std::vector<Range> ranges;
  int64_t count = 0;
};

// A name between commas.
struct Pattern {
  std::vector<Bracket> brackets;
  std::string text_after;
  int64_t count = 1;
};

// Parses one list from left to right.
class Reader {
 public:
  explicit Reader(absl::string_view list) : list_(list) {}

  absl::StatusOr<std::vector<Pattern>> ReadAll() {
    std::vector<Pattern> patterns;
    int64_t total = 0;
    do {
      DDPRUN_ASSIGN_OR_RETURN(Pattern pattern, ReadPattern());
      total += pattern.count;
      if (total > kMaxHosts) return TooMany();
      patterns.push_back(std::move(pattern));
    } while (Take(','));
    return patterns;
  }

 private:
  bool AtEnd() const { return position_ == list_.size(); }
  bool Sees(char c) const { return !AtEnd() && list_[position_] == c; }
  bool Take(char c) {
    if (!Sees(c)) return false;
    ++position_;
    return true;
  }

  absl::Status Wrong(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("not a host list: ", what, " at position ", position_ + 1));
  }
  absl::Status TooMany() const {
    return absl::InvalidArgumentError(absl::StrCat("the host list has more than ", kMaxHosts, " hosts"));
  }

  // Reads text up to a bracket or comma.
  absl::StatusOr<std::string> ReadText() {
    const size_t start = position_;
    while (!AtEnd() && !Sees(',') && !Sees('[')) {
      if (Sees(']')) return Wrong("unmatched ']'");
      if (!absl::ascii_isgraph(list_[position_])) return Wrong("invalid character");
      ++position_;
    }
    return std::string(list_.substr(start, position_ - start));
  }

  absl::StatusOr<Pattern> ReadPattern() {
    Pattern pattern;
    const size_t start = position_;
    size_t longest = 0;
    while (true) {
      DDPRUN_ASSIGN_OR_RETURN(std::string text, ReadText());
      longest += text.size();
      if (!Take('[')) {
        pattern.text_after = std::move(text);
        break;
      }
      DDPRUN_ASSIGN_OR_RETURN(Bracket bracket, ReadRanges());
      bracket.text_before = std::move(text);
      longest += kMaxDigits + 1;
      pattern.count *= bracket.count;  // each is at most kMaxHosts, so this does not overflow
      if (pattern.count > kMaxHosts) return TooMany();
      pattern.brackets.push_back(std::move(bracket));
    }
    if (position_ == start) return Wrong("missing name");
    if (longest > rendezvous::kMaxNameBytes) return Wrong("name too long, ending");
    return pattern;
  }

  // Reads the part after a '[': "1-3,07]".
  absl::StatusOr<Bracket> ReadRanges() {
    Bracket bracket;
    do {
      DDPRUN_ASSIGN_OR_RETURN(Range range, ReadRange());
      bracket.count += range.last - range.first + 1;
      if (bracket.count > kMaxHosts) return TooMany();
      bracket.ranges.push_back(range);
    } while (Take(','));
    if (!Take(']')) return Wrong(AtEnd() ? "missing ']'" : "expected ',', '-' or ']'");
    return bracket;
  }

  absl::StatusOr<Range> ReadRange() {
    Range range;
    const size_t start = position_;
    DDPRUN_ASSIGN_OR_RETURN(int64_t first, ReadNumber());
    range.width = position_ - start;
    range.first = range.last = first;
    if (!Take('-')) return range;
    DDPRUN_ASSIGN_OR_RETURN(range.last, ReadNumber());
    if (range.last < range.first) return Wrong("range with its end before its start, ending");
    if (range.last - range.first >= kMaxHosts) return TooMany();
    return range;
  }

  absl::StatusOr<int64_t> ReadNumber() {
    const size_t start = position_;
    while (!AtEnd() && absl::ascii_isdigit(list_[position_])) ++position_;
    const absl::string_view digits = list_.substr(start, position_ - start);
    if (digits.empty()) return Wrong("missing number");
    int64_t number = 0;
    if (digits.size() > kMaxDigits || !absl::SimpleAtoi(digits, &number)) return Wrong("number too long, ending");
    return number;
  }

  absl::string_view list_;
  size_t position_ = 0;
};

std::string Padded(int64_t number, size_t width) {
  const std::string digits = absl::StrCat(number);
  return digits.size() >= width ? digits : std::string(width - digits.size(), '0') + digits;
}

// Appends every number of `bracket` to each of `names`.
std::vector<std::string> Multiplied(const std::vector<std::string>& names, const Bracket& bracket) {
  std::vector<std::string> product;
  product.reserve(names.size() * bracket.count);
  for (const std::string& name : names) {
    for (const Range& range : bracket.ranges) {
      for (int64_t number = range.first; number <= range.last; ++number) {
        product.push_back(absl::StrCat(name, bracket.text_before, Padded(number, range.width)));
      }
    }
  }
  return product;
}

constexpr int64_t kMaxTasks = 1'000'000;

absl::Status NotCounts(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is not a list of counts such as 2(x3),1: ", why));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandHostList(absl::string_view list) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<Pattern> patterns, Reader(list).ReadAll());
  std::vector<std::string> hosts;
  for (const Pattern& pattern : patterns) {
    std::vector<std::string> names = {""};
    for (const Bracket& bracket : pattern.brackets) names = Multiplied(names, bracket);
    for (std::string& name : names) hosts.push_back(std::move(name) + pattern.text_after);
  }
  return hosts;
}

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
