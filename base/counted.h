#ifndef DDPRUN_BASE_COUNTED_H_
#define DDPRUN_BASE_COUNTED_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

// Texts for numbers of things.
namespace ddprun {

// Returns "1 node", "3 nodes". For nouns whose plural ends in "s".
inline std::string Counted(int64_t n, absl::string_view noun) { return absl::StrCat(n, " ", noun, n == 1 ? "" : "s"); }

// Returns a number of nodes as --nnodes has it: "4", or "2:4" if it is a range.
inline std::string MinMaxText(int64_t min, int64_t max) {
  return min == max ? absl::StrCat(max) : absl::StrCat(min, ":", max);
}

}  // namespace ddprun

#endif  // DDPRUN_BASE_COUNTED_H_
