#ifndef DDPRUN_LAUNCHER_HOSTS_FAILURE_MESSAGE_H_
#define DDPRUN_LAUNCHER_HOSTS_FAILURE_MESSAGE_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "launcher/report/failure_summary.h"
#include "proto/hosts.pb.h"

namespace ddprun::launcher {

// Variable of the launcher on a host: number of the descriptor to which it writes the message instead of the summary.
inline constexpr char kFailureFdVariable[] = "DDPRUN_FAILURE_FD";

hosts::v1::JobFailure ToMessage(const FailureReport& report);

// A host and how its launcher saw the job fail.
struct HostFailure {
  std::string name;  // as the user calls it
  std::string host;  // its own name
  hosts::v1::JobFailure failure;
};

// Returns one summary for all hosts; hosts whose launchers received different verdicts get one each, under their names.
std::string JobSummary(const std::vector<HostFailure>& hosts, absl::TimeZone time_zone);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_FAILURE_MESSAGE_H_
