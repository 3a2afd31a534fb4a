#ifndef DDPRUN_WORKER_RUNTIME_REPORT_PROGRESS_H_
#define DDPRUN_WORKER_RUNTIME_REPORT_PROGRESS_H_

#include <cstdint>
#include <optional>
#include <string>

namespace ddprun {

// Training position of this rank. Numbers must not be negative.
struct StepProgress {
  int64_t step = 0;                // current step, as the trainer counts steps
  std::optional<int64_t> samples;  // samples this rank has trained on
  std::string phase;               // "forward", "backward", "checkpoint" ...; truncated to 64 bytes
  std::optional<double> loss;      // a value on the host: Tensor::item() would wait for the GPU
};

// Reports the position to the launcher, whose failure summary then says where this rank was when it failed ("last
// reported step 120, phase backward, 350ms before it ended"). The last report counts.
//
//   ddprun::ReportProgress({.step = step, .phase = "backward"});
//
// Does nothing without a launcher that supports it. Never blocks: beyond 500 reports a second, or while the launcher is
// behind, newer reports replace older ones. Thread-safe.
void ReportProgress(const StepProgress& progress);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_REPORT_PROGRESS_H_
