#ifndef DDPRUN_LAUNCHER_CLUSTER_SLURM_TEXT_H_
#define DDPRUN_LAUNCHER_CLUSTER_SLURM_TEXT_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

// Parsers for the output of SLURM's tools.
namespace ddprun::launcher {

// Time limit of job `job`, as an absolute time, from the output of `squeue -h -o "%A %e %l"` ("1234 2026-11-21T17:43:10
// 2:00:00", in local time `zone`). Absent if the job is not listed or unlimited ("1234 NONE UNLIMITED"; an unlimited
// running job shows an end a year from now).
std::optional<absl::Time> ReadEndTime(absl::string_view squeue, absl::string_view job, absl::TimeZone zone);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_SLURM_TEXT_H_
