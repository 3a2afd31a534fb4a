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

// Finds the rank that caused a failed operation. Gloo reports to each rank only errors of its own connections, which
// are often mere consequences: a rank that fails closes its connections, its neighbors see those close, and so on. So
// each failing rank posts a report to the store before it closes anything, and all ranks follow the reports to the
// first cause.
namespace ddprun {

struct FailureReport {
  enum class Kind {
    kTimeout,  // timed out
    kLost,     // lost the connection to `lost`
    kAborted,  // Abort was called on that rank; `detail` is the reason
    kLeft,     // destroyed its group without Shutdown
  };
  Kind kind = Kind::kLost;
  std::string operation;    // "all_reduce"
  uint64_t sequence = 0;    // number of the collective in this group, from 1; 0: unknown
  std::optional<int> lost;  // rank at the other end, if known; for kTimeout: a rank that is also unresponsive otherwise
  std::string detail;       // Abort's reason, or the backend's message; one line

  std::string Encode() const;
  static std::optional<FailureReport> Decode(absl::string_view text);
  friend bool operator==(const FailureReport&, const FailureReport&) = default;

  // "all_reduce (collective #17)".
  std::string Operation() const;
};

using FailureReports = std::map<int, FailureReport>;  // keyed by rank; only failed ranks that could still post

// Encodes one line of a list of reports, and decodes the list. Malformed lines are skipped; only a rank's first line
// counts.
std::string EncodeMessage(int rank, const FailureReport& report);
FailureReports DecodeLines(absl::string_view text);

// Origin of a chain of lost connections.
struct FailureCause {
  std::optional<int> rank;                // nullopt: unknown
  std::optional<FailureReport> reported;  // the report of `rank`; nullopt: it posted none, so it is dead or stopped
};
FailureCause FindCause(int rank, const FailureReport& own, const FailureReports& reports);

// True if waiting for more reports improves the message, which then lists the ranks that did not enter the collective.
bool IsTimeout(const FailureCause& cause);

// Returns the error of an operation on `rank`, as one line. REQUIRES: own.kind is kTimeout or kLost.
absl::Status ExplainFailure(const Peers& peers, int rank, absl::Duration timeout, const FailureReport& own,
                            const FailureReports& reports);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_FAILURE_REPORT_H_
