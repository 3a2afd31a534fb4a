#ifndef DDPRUN_LAUNCHER_REPORT_FAILURE_SUMMARY_H_
#define DDPRUN_LAUNCHER_REPORT_FAILURE_SUMMARY_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// Input of FailureSummary.
struct FailureReport {
  std::string entrypoint;  // LaunchConfig's
  rendezvous::Verdict verdict;
  // Workers of this node that failed by themselves in the last round, in the order seen, without the first cause and
  // without those that the launcher stopped.
  std::vector<rendezvous::WorkerFailure> others;
  absl::TimeZone time_zone;  // for the times shown
  std::string interpreter;   // the Python that ran this node's workers; empty: they are programs
  std::string hint;          // advice for the user; may be empty
};

// Returns the summary of a failed job in torchrun's format, so that people and scripts find what they look for: first
// the first cause, identical at every launcher, then this node's other failures in brief. Ends with a newline; empty if
// the job succeeded. Lines are at most 80 columns wide except for paths and tracebacks, which are not broken.
std::string FailureSummary(const FailureReport& report);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_FAILURE_SUMMARY_H_
