#ifndef DDPRUN_BENCHMARKS_DDP_CLOCKS_H_
#define DDPRUN_BENCHMARKS_DDP_CLOCKS_H_

#include <time.h>

namespace ddprun::benchmarks {

inline double ClockSeconds(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Seconds of CLOCK_MONOTONIC, which all processes on a machine share (Python's time.monotonic).
inline double Now() { return ClockSeconds(CLOCK_MONOTONIC); }
// CPU seconds used by all threads of this process.
inline double CpuSeconds() { return ClockSeconds(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace ddprun::benchmarks

#endif  // DDPRUN_BENCHMARKS_DDP_CLOCKS_H_
