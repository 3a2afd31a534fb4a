#ifndef DDPRUN_RENDEZVOUS_HTTP_PROGRESS_VIEW_H_
#define DDPRUN_RENDEZVOUS_HTTP_PROGRESS_VIEW_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "rendezvous/core/job_view.h"

namespace ddprun::http {

// A job's training in a few numbers.
struct ProgressView {
  int64_t step = 0;                // of the rank that is furthest
  std::optional<double> loss;      // of the lowest rank that reported one
  std::optional<int64_t> samples;  // of all ranks; unset: a rank that reported does not say
  int64_t behind = 0;              // steps by which the last rank is behind
  absl::Duration ago;              // since any rank reported something
};
using ProgressByJob = std::map<std::string, ProgressView>;

// PURE. nullopt: no rank of its latest round has reported anything. REQUIRES: `job` has its nodes.
std::optional<ProgressView> Summarize(const rendezvous::JobView& job);

}  // namespace ddprun::http

#endif  // DDPRUN_RENDEZVOUS_HTTP_PROGRESS_VIEW_H_
