#ifndef DDPRUN_LAUNCHER_OS_OOM_H_
#define DDPRUN_LAUNCHER_OS_OOM_H_

#include <cstdint>
#include <optional>
#include <string>

namespace ddprun::launcher {

// How often the kernel has killed something for lack of memory. It keeps no record of whom it killed that an
// ordinary user may read, so this is evidence and no proof: compare a sample from before the workers' start with one
// taken when a worker was found killed by SIGKILL.
struct OomSample {
  std::optional<int64_t> in_cgroup;  // in the memory cgroup of this process, whose limit it shares with its workers
  std::optional<int64_t> on_host;    // anywhere on this host (in a container: what the kernel shows)
};

// Reads the counters; never fails, what can't be read is absent. `root` is "" but in tests.
OomSample SampleOom(const std::string& root = "");

// One line that says what the kernel did between the two samples, empty if it killed nothing that can be seen.
std::string OomEvidence(const OomSample& before, const OomSample& after);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_OOM_H_
