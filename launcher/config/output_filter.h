#ifndef DDPRUN_LAUNCHER_CONFIG_OUTPUT_FILTER_H_
#define DDPRUN_LAUNCHER_CONFIG_OUTPUT_FILTER_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// The workers whose output is shown: --local-ranks-filter.
struct RankFilter {
  std::set<int32_t> ranks;  // empty: all
  bool global = false;      // they are ranks of the job, not of the node

  bool Shows(int32_t local_rank, int32_t rank) const {
    return ranks.empty() || ranks.contains(global ? rank : local_rank);
  }
  // As ParseRankFilter reads it.
  std::string ToString() const;
  friend bool operator==(const RankFilter&, const RankFilter&) = default;
};

// Parses local ranks such as "0,2", or ranks of the job such as "global:0,8". InvalidArgument: one line, without the
// flag's name.
absl::StatusOr<RankFilter> ParseRankFilter(absl::string_view text);

// Parses texts such as "apple,orange", of which a line must contain one (--duplicate-stdout-filters). Two commas stand
// for a literal comma. Empty texts are dropped.
std::vector<std::string> ParseLineFilters(absl::string_view text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_OUTPUT_FILTER_H_
