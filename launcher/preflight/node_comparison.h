#ifndef DDPRUN_LAUNCHER_PREFLIGHT_NODE_COMPARISON_H_
#define DDPRUN_LAUNCHER_PREFLIGHT_NODE_COMPARISON_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/hosts.pb.h"

// PURE. Compares what the hosts of a job have reported before its workers start.
namespace ddprun::launcher {

struct HostReading {
  std::string name;  // name in --hosts
  hosts::v1::HostReport::Facts facts;
  absl::Duration clock_ahead;  // difference of its clock; at most `clock_error` off
  absl::Duration clock_error;
  std::vector<std::string> errors;  // Reached.errors
};

struct NodeComparison {
  std::string table;                  // the facts that differ, a line each; empty: none does
  std::vector<std::string> errors;    // a line for each difference with which the job can't run
  std::vector<std::string> warnings;  // for each with which it may not do what the user wants
};

// The first host is the one that others are compared with, except where another value is that of most hosts.
NodeComparison CompareNodes(const std::vector<HostReading>& hosts);

struct AddressChoice {
  std::optional<int> index;         // position in Listening.addresses
  std::vector<std::string> errors;  // without it: a line for each host with its attempts
};

// Chooses the first address of the first host that all others have reached.
AddressChoice ChooseCommonAddress(const hosts::v1::HostReport::Listening& first, const std::vector<HostReading>& hosts);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PREFLIGHT_NODE_COMPARISON_H_
