#ifndef DDPRUN_LAUNCHER_PROGRESS_PROGRESS_REPORTS_H_
#define DDPRUN_LAUNCHER_PROGRESS_PROGRESS_REPORTS_H_

#include <cstdint>
#include <map>
#include <optional>

#include "base/steady_time.h"
#include "rendezvous/core/messages.h"
#include "worker_contract/worker_link.h"

namespace ddprun::launcher {

// PURE: collects progress reports for the server: the latest report of each rank, at most one message per
// rendezvous::kProgressInterval, and none if the server does not accept them. Thread-compatible.
class ProgressReports {
 public:
  // Checks whether the server accepts progress reports.
  void OnWelcome(const rendezvous::Welcome& welcome);
  // Drops unsent reports of earlier rounds. May be called again for the same round.
  void BeginRound(uint64_t round);
  void OnProgress(int32_t local_rank, const worker_contract::LinkProgress& progress, SteadyTime at);

  // When Take will return a message.
  SteadyTime NextDeadline() const;
  // Returns the message to send now, if any.
  std::optional<rendezvous::Progress> Take(SteadyTime now);

 private:
  struct Report {
    rendezvous::RankProgress progress;
    SteadyTime at;
  };

  bool server_accepts_ = false;
  uint64_t round_ = 0;
  std::map<int32_t, Report> fresh_;  // by local rank; not sent yet
  SteadyTime not_before_ = SteadyTime::InfinitePast();
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_PROGRESS_REPORTS_H_
