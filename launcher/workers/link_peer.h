#ifndef DDPRUN_LAUNCHER_WORKERS_LINK_PEER_H_
#define DDPRUN_LAUNCHER_WORKERS_LINK_PEER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "rendezvous/core/messages.h"
#include "worker_contract/worker_link.h"

namespace ddprun::launcher {

// The latest progress report of a worker and the time of its arrival.
struct ReportedProgress {
  worker_contract::LinkProgress progress;
  SteadyTime at;
};

// Returns one line that is safe for a terminal: "last reported step 120, phase backward, loss 2.31, 350ms before it
// ended".
std::string DescribeProgress(const ReportedProgress& reported, SteadyTime ended);

// PURE: the launcher's side of one worker link connection (docs/worker_protocol.md). Parses lines and enforces the
// limits beyond which the connection is closed. Thread-compatible.
class LinkPeer {
 public:
  // `rank`: the worker's rank in the round.
  LinkPeer(int32_t rank, SteadyTime now);

  // InvalidArgument: the connection must be closed (2.4); the message is one line. Lines before the offending one still
  // count.
  absl::Status OnBytes(absl::string_view bytes, SteadyTime now);

  // Changes the rank that the worker's next hello must contain.
  void SetRank(int32_t rank) { rank_ = rank; }

  // The worker's hello; unset until it arrives.
  const std::optional<worker_contract::LinkHello>& hello() const { return hello_; }
  // True if the connection began with a probe: it carries answers from now on (section 7), not messages.
  bool is_probe() const { return is_probe_; }
  // The latest progress report. "finished" and "exiting" do not replace an earlier report of the same step, which is
  // more informative.
  const std::optional<ReportedProgress>& progress() const { return progress_; }
  // Returns the progress reports received since the last call, in order.
  std::vector<ReportedProgress> TakeReports() { return std::exchange(reports_, {}); }
  // Returns all other lines received since the last call, hello first.
  std::vector<worker_contract::WorkerLinkMessage> TakeLines() { return std::exchange(lines_, {}); }

 private:
  absl::Status OnLine(absl::string_view line, SteadyTime now);

  int32_t rank_;
  worker_contract::LineReader reader_;
  std::optional<worker_contract::LinkHello> hello_;
  bool is_probe_ = false;
  std::optional<ReportedProgress> progress_;
  std::vector<ReportedProgress> reports_;
  std::vector<worker_contract::WorkerLinkMessage> lines_;
  // Rate limit: lines allowed as of last_line_.
  double allowance_;
  SteadyTime last_line_;
};

// The worker reported that its process group is broken, with a description of the cause.
struct GroupBroken {
  uint64_t round = 0;
  rendezvous::WorkerFailure failure = rendezvous::NewFailure();
};

// The worker's connection was closed.
struct LinkClosed {};

// Events on a worker's link, except progress reports.
using LinkEvent =
    std::variant<worker_contract::LinkHello, worker_contract::LinkSuspended, worker_contract::LinkReFormed,
                 worker_contract::LinkCheckpointed, GroupBroken, LinkClosed>;

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WORKERS_LINK_PEER_H_
