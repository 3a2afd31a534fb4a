#ifndef DDPRUN_LAUNCHER_HOSTS_NODE_COMPARISON_H_
#define DDPRUN_LAUNCHER_HOSTS_NODE_COMPARISON_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/hosts.pb.h"

// PURE. Compares the hosts of a job before its workers start.
namespace ddprun::launcher {

struct HostReading {
  std::string name;  // as in --hosts
  hosts::v1::HostReport::Facts facts;
  absl::Duration clock_ahead;  // of this host's clock; at most `clock_error` off
  absl::Duration clock_error;
};

struct NodeComparison {
  std::string table;                  // the facts that differ, a line each; empty: none does
  std::vector<std::string> errors;    // a line for each difference with which the job can't run
  std::vector<std::string> warnings;  // for each with which it may not do what the user wants
};

// The first host is the one that others are compared with, except where another value is that of most hosts.
NodeComparison CompareNodes(const std::vector<HostReading>& hosts);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_NODE_COMPARISON_H_
