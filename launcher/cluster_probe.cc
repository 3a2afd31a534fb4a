#include "launcher/cluster_probe.h"

#include <netdb.h>
#include <sys/socket.h>

#include <string>

#include "base/process.h"
#include "launcher/cluster/detect.h"
#include "launcher/cluster/slurm_text.h"
#include "launcher/process/proc_files.h"

namespace ddprun::launcher {
namespace {

// Fully qualified name of this host; empty if unknown.
std::string FullHostname() {
  addrinfo hints = {};
  hints.ai_flags = AI_CANONNAME;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(Hostname().c_str(), nullptr, &hints, &found) != 0) return "";
  const std::string name = found->ai_canonname == nullptr ? "" : found->ai_canonname;
  freeaddrinfo(found);
  return name;
}

}  // namespace

absl::StatusOr<ClusterEnvironment> ProbeCluster(const EnvironmentLookup& environment,
                                                const std::optional<PortRange>& ports) {
  const bool in_pod = environment("JOB_COMPLETION_INDEX").has_value();
  absl::StatusOr<ClusterEnvironment> found =
      DetectCluster(environment, ports, in_pod ? FullHostname() : "", ReadSmallFile);
  if (!found.ok() || found->starter != ClusterEnvironment::Starter::kSlurm || !found->batch) return found;
  std::string text;
  for (const std::string& place : SlurmConfPaths(environment)) {
    if (text.empty()) text = ReadSmallFile(place);
  }
  // Merged even if empty, since SLURM's defaults apply then.
  MergeSlurmConf(ParseSlurmConf(text), *found->batch);
  return found;
}

}  // namespace ddprun::launcher
