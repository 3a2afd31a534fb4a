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

// Finds the rank that caused a failed operation. Gloo tells each rank only what happened on its own connections, and
// that is often only a consequence: a rank that fails closes its connections, its neighbors see those close, and so on.
// So each failing rank posts a report to the store before it closes anything, and all ranks follow the reports to the
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
  std::optional<int> lost;  // the rank at the other end, if known; of a timeout: which does not answer in other ways
  std::string detail;       // Abort's reason, or the backend's message; one line

  std::string Encode() const;
  static std::optional<FailureReport> Decode(absl::string_view text);
  friend bool operator==(const FailureReport&, const FailureReport&) = default;

  // "all_reduce (collective #17)".
  std::string Operation() const;
};

using FailureReports = std::map<int, FailureReport>;  // by rank; of failed ranks that could still post a report

// One line of a list of reports, and the list. Lines that can't be read are skipped; of a rank's lines the first
// counts.
std::string EncodeLine(int rank, const FailureReport& report);
FailureReports DecodeLines(absl::string_view text);

// The origin of a chain of lost connections.
struct FailureCause {
  std::optional<int> rank;                // nullopt: unknown
  std::optional<FailureReport> reported;  // that rank's report; nullopt: it posted none, so it is dead or stopped
};
FailureCause FindCause(int rank, const FailureReport& own, const FailureReports& reports);

// Whether waiting for more reports improves the message, because it is about ranks that did not enter the collective.
bool IsTimeout(const FailureCause& cause);

// The error of an operation on `rank`, as one line. REQUIRES: own.kind is kTimeout or kLost.
absl::Status ExplainFailure(const Peers& peers, int rank, absl::Duration timeout, const FailureReport& own,
                            const FailureReports& reports);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_FAILURE_REPORT_H_
