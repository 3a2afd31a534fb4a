#ifndef DDPRUN_BASE_RANKS_TEXT_H_
#define DDPRUN_BASE_RANKS_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun {

// Formats numbers as "0-2, 5, 7-9": sorted, without duplicates. If there are more than 8 ranges, the list is cut: "0,
// 2, 4, ... (500 in all)".
std::string RangesText(std::vector<int32_t> numbers);

// Formats the ranks `base_rank` + each of `ranks` as "rank 3", "ranks 0-2, 5" or "no rank".
std::string RanksText(std::vector<int32_t> ranks, int32_t base_rank = 0);

}  // namespace ddprun

#endif  // DDPRUN_BASE_RANKS_TEXT_H_
