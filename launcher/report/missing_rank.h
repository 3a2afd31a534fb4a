#ifndef DDPRUN_LAUNCHER_REPORT_MISSING_RANK_H_
#define DDPRUN_LAUNCHER_REPORT_MISSING_RANK_H_

#include <cstdint>
#include <optional>
#include <string>

namespace ddprun::launcher {

// A rank that has not connected to the round's store.
struct MissingRank {
  int rank = 0;
  std::optional<int> local_rank;  // not known as long as its launcher has not registered
  std::string host;               // empty: likewise
  uint32_t pid = 0;               // 0: likewise

  bool operator==(const MissingRank&) const = default;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_MISSING_RANK_H_
