#ifndef DDPRUN_LAUNCHER_CLUSTER_ALLOCATION_H_
#define DDPRUN_LAUNCHER_CLUSTER_ALLOCATION_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/flag_value.h"

namespace ddprun::launcher {

// The hosts of a job of PBS, LSF or Grid Engine. These run the batch script on the first of them.
struct Allocation {
  std::string system;              // "PBS"
  std::vector<std::string> hosts;  // without duplicates, in order; empty: unknown
  Found<int> count;                // number of hosts, at least 1
  Found<std::string> job_id;
  std::optional<Found<int>> index;  // of this process, if the system's own tool started one on each (pbsdsh, blaunch)
  std::string how_to_start;         // a command that starts one process on each of them
  std::string obstacle;             // see ClusterEnvironment
};

// Reads PBS's, LSF's or Grid Engine's variables and the files that they name; nullopt without them. InvalidArgument:
// one line with the variable, its value and what is wrong.
absl::StatusOr<std::optional<Allocation>> ReadAllocation(const EnvironmentLookup& environment,
                                                         const FileLookup& read_file);

// The rendezvous server of the job: the first host, at DerivedPort. Absent if the hosts are unknown.
std::optional<Found<Endpoint>> FirstHost(const Allocation& allocation, const std::optional<PortRange>& ports);

// The environment of a process that nothing else placed: pbsdsh or blaunch started it, or it is in the batch script of
// several hosts, for which `remedy` says what to do. Kind kNone for a job of one host.
ClusterEnvironment Placed(const Allocation& allocation, const std::optional<PortRange>& ports);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_ALLOCATION_H_
