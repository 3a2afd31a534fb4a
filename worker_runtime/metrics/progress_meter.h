#ifndef DDPRUN_WORKER_RUNTIME_METRICS_PROGRESS_METER_H_
#define DDPRUN_WORKER_RUNTIME_METRICS_PROGRESS_METER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/steady_time.h"

namespace ddprun {

struct ProgressOptions {
  int64_t total_steps = 0;  // of the whole training; 0: not known, so there is no ETA
  int64_t first_step = 0;   // steps that were done before, if the training was resumed

  // What all ranks together do in a step, shown as "1200 samples/s"; 0: only steps/s.
  double items_per_step = 0;
  std::string item = "samples";

  // Between lines, where the output is no terminal.
  absl::Duration every = absl::Seconds(10);
};

// PURE: when ProgressLine writes, and what.
class ProgressMeter {
 public:
  // `now` is when the first step begins.
  ProgressMeter(ProgressOptions options, SteadyTime now)
      : options_(std::move(options)), began_({options_.first_step, now}), shown_(began_) {}

  // After `step` steps in all: the bytes to write, empty if it is not time yet. `columns` is the terminal's width; then
  // they write over the last line. 0: no terminal; then they are a line. The last step is always shown.
  //
  //   step 120/400 (30%)  loss 2.345  4.1 steps/s  67 samples/s  ETA 1m8s
  //
  // Rates are those since the last output, the ETA comes from that since `now` of the constructor.
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

#endif  // DDPRUN_WORKER_RUNTIME_METRICS_PROGRESS_METER_H_
