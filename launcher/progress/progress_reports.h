#ifndef DDPRUN_LAUNCHER_PROGRESS_PROGRESS_REPORTS_H_
#define DDPRUN_LAUNCHER_PROGRESS_PROGRESS_REPORTS_H_

#include <cstdint>
#include <map>
#include <optional>

#include "base/steady_time.h"
#include "launcher/progress/progress_board.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// PURE: the progress reports for the server: the board's latest report of each rank, at most one message per
// rendezvous::kProgressInterval. Thread-compatible.
class ProgressReports {
 public:
  explicit ProgressReports(const ProgressBoard* board) : board_(board) {}

  // The board has begun a round: its earlier reports are not sent any more.
  void OnRound() { fresh_.clear(); }
  // The board has a new report of this rank.
  void OnProgress(int32_t local_rank);

  // When Take will return a message.
  SteadyTime NextDeadline() const;
  // Returns the message to send now, if any.
  std::optional<rendezvous::Progress> Take(SteadyTime now);

 private:
  const ProgressBoard* const board_;
  std::map<int32_t, bool> fresh_;  // local ranks whose last report was not sent yet; true: nor was their last loss
  SteadyTime not_before_ = SteadyTime::InfinitePast();
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_PROGRESS_REPORTS_H_
