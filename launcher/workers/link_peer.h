#ifndef DDPRUN_LAUNCHER_WORKERS_LINK_PEER_H_
#define DDPRUN_LAUNCHER_WORKERS_LINK_PEER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "worker_contract/worker_link.h"

namespace ddprun::launcher {

// What a worker reported last, and when it arrived.
struct ReportedProgress {
  worker_contract::LinkProgress progress;
  SteadyTime at;
};

// "last reported step 120, phase backward, loss 2.31, 350ms before it ended", on one line fit for a terminal.
std::string DescribeProgress(const ReportedProgress& reported, SteadyTime ended);

// PURE: one connection of the worker link as the launcher reads it (docs/worker_protocol.md): its lines, and the bounds
// beyond which it is closed. Thread-compatible.
class LinkPeer {
 public:
  // Of the worker with this rank of the round.
  LinkPeer(int32_t rank, SteadyTime now);

  // InvalidArgument: the connection is to be closed (2.4), with the reason in one line. What came before the offending
  // line counts.
  absl::Status OnBytes(absl::string_view bytes, SteadyTime now);

  // The worker has this rank now: its next hello has to say so.
  void SetRank(int32_t rank) { rank_ = rank; }

  // The worker's hello has come.
  const std::optional<worker_contract::LinkHello>& hello() const { return hello_; }
  // The last progress, but for "finished" and "exiting" in a step of which more is known.
  const std::optional<ReportedProgress>& progress() const { return progress_; }
  // All progress that has come since the last call, in its order.
  std::vector<ReportedProgress> TakeReports() { return std::exchange(reports_, {}); }
  // What else has come since the last call, hello first.
  std::vector<worker_contract::WorkerLine> TakeLines() { return std::exchange(lines_, {}); }

 private:
  absl::Status OnLine(absl::string_view line, SteadyTime now);

  int32_t rank_;
  worker_contract::LineReader reader_;
  std::optional<worker_contract::LinkHello> hello_;
  std::optional<ReportedProgress> progress_;
  std::vector<ReportedProgress> reports_;
  std::vector<worker_contract::WorkerLine> lines_;
  // Lines that may still come, at the time of the last one.
  double allowance_;
  SteadyTime last_line_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WORKERS_LINK_PEER_H_
