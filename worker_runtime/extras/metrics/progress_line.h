#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_METRICS_PROGRESS_LINE_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_METRICS_PROGRESS_LINE_H_

#include <unistd.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "worker_runtime/extras/metrics/progress_meter.h"

namespace ddprun {

// Progress line of rank 0 on stderr. It is rewritten in place on a terminal; otherwise (in a file, or under a launcher
// that prefixes each line with the rank) a new line is written every ten seconds and after the last step.
//
//   ddprun::ProgressLine progress(worker.env().rank, {.total_steps = 400, .first_step = resumed_step});
//   for (...) {
//     ...
//     if (step % 100 == 0) progress.SetMetrics(*metrics.Reduce(*worker.group()));
//     progress.Update(step);
//   }
//
// On all ranks, Update reports the step to the launcher (report_progress.h); other ranks do nothing else. It costs a
// few microseconds, tens if it wakes the launcher up (docs/worker_protocol.md 3.3). Thread-compatible.
class ProgressLine {
 public:
  // The first step begins now. `fd` must stay open.
  ProgressLine(int rank, ProgressOptions options, int fd = STDERR_FILENO);

  // Ends the terminal's line.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Metrics to show from the next line on, in the order of their names.
  void SetMetrics(std::map<std::string, double> metrics) { metrics_ = std::move(metrics); }

  // `step` is the total number of steps done, including those before a resume.
  void Update(int64_t step);

 private:
  void Write(const std::string& bytes);

  const int fd_;
  std::optional<ProgressMeter> meter_;  // on rank 0
  std::map<std::string, double> metrics_;
  bool inside_line_ = false;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_METRICS_PROGRESS_LINE_H_
