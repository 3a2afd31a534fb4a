#include "base/ranks_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddprun {
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

}  // namespace ddprun
