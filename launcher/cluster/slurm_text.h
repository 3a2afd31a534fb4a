#ifndef DDPRUN_LAUNCHER_CLUSTER_SLURM_TEXT_H_
#define DDPRUN_LAUNCHER_CLUSTER_SLURM_TEXT_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

// What SLURM's files and tools say, as values.
namespace ddprun::launcher {

// The end of the time of job `job` from what `squeue -h -o "%A %e %l"` printed ("1234 2026-11-21T17:43:10 2:00:00", in
// local time `zone`). Absent if the job is not there, or has no end ("1234 NONE UNLIMITED", or a year from now).
std::optional<absl::Time> ReadEndTime(absl::string_view squeue, absl::string_view job, absl::TimeZone zone);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_SLURM_TEXT_H_
