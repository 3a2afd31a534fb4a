#ifndef DDPRUN_LAUNCHER_CONFIG_OUTPUT_FILTER_H_
#define DDPRUN_LAUNCHER_CONFIG_OUTPUT_FILTER_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Parses local ranks such as "0,2" (--local-ranks-filter). InvalidArgument: one line, without the flag's name.
absl::StatusOr<std::set<int32_t>> ParseLocalRanks(absl::string_view text);

// Parses texts such as "apple,orange", of which a line must contain one (--duplicate-stdout-filters). Two commas stand
// for a literal comma. Empty texts are dropped.
std::vector<std::string> ParseLineFilters(absl::string_view text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_OUTPUT_FILTER_H_
