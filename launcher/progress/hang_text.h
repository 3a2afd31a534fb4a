#ifndef DDPRUN_LAUNCHER_PROGRESS_HANG_TEXT_H_
#define DDPRUN_LAUNCHER_PROGRESS_HANG_TEXT_H_

#include <cstdint>
#include <string>

#include "launcher/progress/progress_watch.h"

// PURE: log lines about hung and slow workers, one line each, without a newline. `base_rank` is the rank of the node's
// first worker.
namespace ddprun::launcher {

// A worker's position: "phase forward of step 120" or "step 120".
std::string StandingText(const WorkerStanding& standing);

// "rank 3 has been in phase forward of step 120 for 4.2s (usually 300ms, limit 1.0s); ranks 0-2 wait in phase backward
// of step 120"
// "ranks 0-3 have been in phase backward of step 120 for 1m5s (usually 200ms, limit 1m0s): they wait for each other or
// for another node (see its launcher's log)"
// REQUIRES: hang.behind is not empty.
std::string HangText(const effect::Hang& hang, int32_t base_rank);

// Failure message of a worker that is killed for hanging: "hung in phase forward of step 120 for 4.2s (limit 1.0s);
// killed (--on-hang=restart)".
std::string HangFailureText(const WorkerStanding& standing);

// "rank 3 continued after 4.2s in phase forward of step 120"
std::string HangEndedText(const effect::HangEnded& went_on, int32_t base_rank);

// "rank 3 (pid 77) has run to the end of its program and has not exited for 5m0s; it counts as finished, and is killed
// after 10m0s if it is idle"
// "rank 3 (pid 77) has finished its training and has not exited for 5m0s"
// "rank 3 (pid 77) has run to the end of its program and has not exited for 10m0s: killed; it counts as finished"
std::string NotExitedText(const effect::NotExited& not_exited, int32_t base_rank, int64_t pid);

// "rank 3 is slow: it computes 450ms of a step before the ranks wait for each other, 1.5 times the median of this
// node's ranks (300ms)"; several ranks: one after the other.
std::string StragglersText(const effect::Stragglers& stragglers, int32_t base_rank);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_HANG_TEXT_H_
