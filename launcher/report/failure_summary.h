#ifndef DDPRUN_LAUNCHER_REPORT_FAILURE_SUMMARY_H_
#define DDPRUN_LAUNCHER_REPORT_FAILURE_SUMMARY_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/hosts.pb.h"

namespace ddprun::launcher {

// Returns the summary of a failed job in torchrun's format, so that people and scripts find what they look for: first
// the first cause, identical at every launcher, then this node's other failures in brief. Ends with a newline; empty if
// the job succeeded. Lines are at most 80 columns wide except for paths and tracebacks, which are not broken.
std::string FailureSummary(const hosts::v1::JobFailure& failure, absl::TimeZone time_zone);

// A host and how its launcher saw the job fail.
struct HostFailure {
  std::string name;  // name that the user gave
  std::string host;  // its own name
  hosts::v1::JobFailure failure;
};

// Returns one summary for all hosts; hosts whose launchers received different verdicts get one each, under their names.
std::string FailureSummary(const std::vector<HostFailure>& hosts, absl::TimeZone time_zone);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_FAILURE_SUMMARY_H_
