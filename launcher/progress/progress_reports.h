#ifndef DDPRUN_LAUNCHER_PROGRESS_PROGRESS_REPORTS_H_
#define DDPRUN_LAUNCHER_PROGRESS_PROGRESS_REPORTS_H_

#include <cstdint>
#include <map>
#include <optional>

#include "base/steady_time.h"
#include "rendezvous/core/messages.h"
#include "worker_contract/worker_link.h"

namespace ddprun::launcher {

// PURE: what the server is told of the workers' progress: the newest report of each rank, at most one message in
// rendezvous::kProgressInterval. Thread-compatible.
class ProgressReports {
 public:
  // Reports of an earlier round are not told any more. May be called again for the same round.
  void BeginRound(uint64_t round);
  void OnProgress(int32_t local_rank, const worker_contract::LinkProgress& progress, SteadyTime at);

  // When Take has something.
  SteadyTime NextDeadline() const;
  // To be sent now, if anything is.
  std::optional<rendezvous::Progress> Take(SteadyTime now);

 private:
  struct Report {
    rendezvous::RankProgress progress;
    SteadyTime at;
  };

  uint64_t round_ = 0;
  std::map<int32_t, Report> fresh_;  // by local rank
  SteadyTime not_before_ = SteadyTime::InfinitePast();
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_PROGRESS_REPORTS_H_
