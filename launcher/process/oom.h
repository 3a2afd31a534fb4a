#ifndef DDPRUN_LAUNCHER_PROCESS_OOM_H_
#define DDPRUN_LAUNCHER_PROCESS_OOM_H_

#include <cstdint>
#include <optional>
#include <string>

namespace ddprun::launcher {

// Counters of the kernel's OOM kills. Unprivileged users can't see which process was killed, so this is evidence but
// not proof: compare a sample from before the workers' start with one taken after a worker was killed by SIGKILL.
struct OomSample {
  std::optional<int64_t> in_cgroup;  // in this process's memory cgroup, whose limit it shares with its workers
  std::optional<int64_t> on_host;    // anywhere on this host (in a container: what the kernel shows)
};

// Reads the counters; those that can't be read are unset. `root` is "" except in tests.
OomSample SampleOom(const std::string& root = "");

// One line about OOM kills between the two samples; empty if there were none.
std::string OomEvidence(const OomSample& before, const OomSample& after);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_OOM_H_
