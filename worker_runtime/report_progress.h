#ifndef DDPRUN_WORKER_RUNTIME_REPORT_PROGRESS_H_
#define DDPRUN_WORKER_RUNTIME_REPORT_PROGRESS_H_

#include <cstdint>
#include <optional>
#include <string>

namespace ddprun {

// Where this rank is. Numbers are not negative.
struct StepProgress {
  int64_t step = 0;                // that it is in, as the trainer counts them
  std::optional<int64_t> samples;  // that it has trained on
  std::string phase;               // "forward", "backward", "checkpoint" ...; at most 64 bytes count
  std::optional<double> loss;      // one that the host has: Tensor::item() would wait for the GPU
};

// Tells the launcher, so that its failure summary says where this rank was when it failed ("last reported step 120,
// phase backward, 350ms before it ended"). The last report counts.
//
//   ddprun::ReportProgress({.step = step, .phase = "backward"});
//
// Does nothing under another launcher or none. Never blocks: beyond 500 reports a second, or while the launcher is
// behind, newer ones take the place of older ones. Thread-safe. ProgressLine::Update reports the step by itself.
void ReportProgress(const StepProgress& progress);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_REPORT_PROGRESS_H_
