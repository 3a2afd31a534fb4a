#ifndef DDPRUN_DDPRUNCTL_PROFILE_H_
#define DDPRUN_DDPRUNCTL_PROFILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/control.pb.h"

namespace ddprun::ctl {

// PURE: what all ranks of a job did, from their stacks, which were asked for again and again. All times are those of
// the process that asked, so that clocks of hosts do not matter. Thread-compatible.
class Profile {
 public:
  // Adds the stacks of this time after the begin. Calls must be in the order of time.
  void Add(absl::Duration at, const v1::InspectResponse& sample);

  int ranks() const { return static_cast<int>(ranks_.size()); }

  // Returns the calls in Chrome's Trace Event Format, which https://ui.perfetto.dev opens: a process per rank, and in
  // it a track per thread. A call lasts from the first sample that has it to the first one that lacks it, or to `end`.
  std::string TraceText(absl::Duration end) const;

 private:
  struct Frame {
    std::string name;   // "load (train.py)"; native: "poll (libc.so.6)"
    std::string place;  // the whole line of the stack
  };
  using Stack = std::vector<Frame>;  // outermost first
  struct Rank {
    std::string title;                                                     // "rank 3 (node-b, pid 5812)"
    std::map<std::string, std::vector<std::pair<int64_t, Stack>>> tracks;  // samples, in microseconds; keys are titles
  };

  static Frame ParseFrame(absl::string_view line);
  // Adds the stacks of a text: titles at the beginning of a line, their frames indented and innermost first.
  static void AddStacks(int64_t at, const std::string& text, Rank* rank);

  std::map<int32_t, Rank> ranks_;
};

}  // namespace ddprun::ctl

#endif  // DDPRUN_DDPRUNCTL_PROFILE_H_
