#ifndef DDPRUN_LAUNCHER_REPORT_MISSING_RANK_H_
#define DDPRUN_LAUNCHER_REPORT_MISSING_RANK_H_

#include <cstdint>
#include <optional>
#include <string>

namespace ddprun::launcher {

// A rank that has not connected to the round's store.
struct MissingRank {
  int rank = 0;
  std::optional<int> local_rank;  // unset until its launcher has registered
  std::string host;               // empty until then
  uint32_t pid = 0;               // 0 until then

  bool operator==(const MissingRank&) const = default;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_MISSING_RANK_H_
