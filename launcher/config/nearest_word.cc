#include "launcher/config/nearest_word.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMinPrefix = 3;
constexpr size_t kMaxLength = 64;  // longer words are not misspelt flags, and are expensive to compare

// Optimal string alignment distance: Levenshtein distance with swaps of neighbours.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::optional<std::string> NearestWord(absl::string_view given, absl::Span<const std::string> words) {
  if (given.empty() || given.size() > kMaxLength) return std::nullopt;
  std::optional<std::string> nearest;
  size_t least = 0;
  for (const std::string& word : words) {
    const bool abbreviated = given.size() >= kMinPrefix && absl::StartsWith(word, given);
    const size_t distance = abbreviated ? 0 : Distance(given, word);
    if (distance > word.size() / 3) continue;
    if (!nearest || distance < least) {
      nearest = word;
      least = distance;
    }
  }
  return nearest;
}

}  // namespace ddprun::launcher
