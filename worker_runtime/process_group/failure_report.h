#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_FAILURE_REPORT_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_FAILURE_REPORT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker_runtime/process_group/peers.h"

// Who is to blame when an operation fails. Gloo tells each rank only what happened on its own connections, and that
// mostly last: a rank that gives up closes its connections, its neighbours see those close, and so on. So every rank
// that fails leaves a report in the store before it closes anything, and all follow the reports to the rank where it
// began.
namespace ddprun {

struct FailureReport {
  enum class Kind {
    kTimeout,  // waited in vain
    kLost,     // a connection to `lost` broke
    kAborted,  // Abort was called there; `detail` is the reason
    kLeft,     // destroyed its group without Shutdown
  };
  Kind kind = Kind::kLost;
  std::string operation;    // "all_reduce"
  uint64_t sequence = 0;    // which collective of the group it was, counted from 1; 0: unknown
  std::optional<int> lost;  // the rank at the other end, if known
  std::string detail;       // Abort's reason, or what the backend said; one line

  std::string Encode() const;
  static std::optional<FailureReport> Decode(absl::string_view text);
  friend bool operator==(const FailureReport&, const FailureReport&) = default;

  // "all_reduce (collective #17)".
  std::string Operation() const;
};

using FailureReports = std::map<int, FailureReport>;  // by rank; those that have failed and could still say so

// Where a chain of lost connections began.
struct FailureCause {
  std::optional<int> rank;                // nullopt: not known
  std::optional<FailureReport> reported;  // what that rank said; nullopt: it has said nothing, so it is dead
};
FailureCause FindCause(int rank, const FailureReport& own, const FailureReports& reports);

// Whether the text gets better by waiting for more reports: it is about who did not come.
bool IsTimeout(const FailureCause& cause);

// The error of an operation on `rank`, in one line. REQUIRES: own.kind is kTimeout or kLost.
absl::Status ExplainFailure(const Peers& peers, int rank, absl::Duration timeout, const FailureReport& own,
                            const FailureReports& reports);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_FAILURE_REPORT_H_
