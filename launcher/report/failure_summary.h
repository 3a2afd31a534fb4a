#ifndef DDPRUN_LAUNCHER_REPORT_FAILURE_SUMMARY_H_
#define DDPRUN_LAUNCHER_REPORT_FAILURE_SUMMARY_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// What a launcher says at the end of a failed job.
struct FailureReport {
  std::string entrypoint;  // LaunchConfig's
  rendezvous::Verdict verdict;
  // Workers of this node that failed by themselves in the last round, besides the first cause and in the order seen.
  // Those that the launcher stopped are no failures and do not belong here.
  std::vector<rendezvous::WorkerFailure> others;
  absl::TimeZone time_zone;  // for the times shown
  std::string interpreter;   // that ran this node's workers; empty: they are programs
  std::string hint;          // what to do, if that is known
};

// The summary, in torchrun's frame so that people and scripts find what they look for: first cause first, the same
// at every launcher, then this node's other failures in brief. Ends with a newline; empty if the job succeeded.
// Lines are at most 80 columns wide where what they say allows (paths and tracebacks are not broken).
std::string FailureSummary(const FailureReport& report);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_FAILURE_SUMMARY_H_
