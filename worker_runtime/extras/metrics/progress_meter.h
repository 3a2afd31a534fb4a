#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_METRICS_PROGRESS_METER_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_METRICS_PROGRESS_METER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/steady_time.h"

namespace ddprun {

struct ProgressOptions {
  int64_t total_steps = 0;  // in the whole training; 0: unknown, so there is no ETA
  int64_t first_step = 0;   // steps done before, if the training was resumed

  // Items that all ranks together process in a step, shown as "1200 samples/s"; 0: only steps/s.
  double items_per_step = 0;
  std::string item = "samples";

  // Interval between lines if the output is not a terminal.
  absl::Duration every = absl::Seconds(10);
};

// PURE: decides when ProgressLine writes, and formats the line.
class ProgressMeter {
 public:
  // `now` is when the first step begins.
  ProgressMeter(ProgressOptions options, SteadyTime now)
      : options_(std::move(options)), began_({options_.first_step, now}), shown_(began_) {}

  // Returns the bytes to write after `step` steps in total; empty if it is not time yet. `columns` is the terminal's
  // width; the bytes then overwrite the last line. 0: not a terminal; the bytes are a complete line. The last step is
  // always shown.
  //
  //   step 120/400 (30%)  loss 2.345  4.1 steps/s  67 samples/s  ETA 1m8s
  //
  // Rates are measured since the last output, the ETA since `now` of the constructor.
  std::string Update(int64_t step, const std::map<std::string, double>& metrics, SteadyTime now, int columns);

 private:
  struct Point {
    int64_t step;
    SteadyTime time;
  };

  bool IsLast(int64_t step) const { return options_.total_steps > 0 && step == options_.total_steps; }
  std::string Line(int64_t step, const std::map<std::string, double>& metrics, SteadyTime now) const;

  const ProgressOptions options_;
  const Point began_;
  Point shown_;  // at the last output
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_METRICS_PROGRESS_METER_H_
