#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_VIEW_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_VIEW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/steady_time.h"
#include "rendezvous/core/job_state.h"
#include "rendezvous/core/messages.h"

// A job as it is displayed: the values of Job in proto/rendezvous.proto, which the shells convert (wire/job_wire.h).
namespace ddprun::rendezvous {

// Summary of the progress that the ranks of a job report (protocol 6.1).
struct TrainingView {
  int64_t step = 0;                // highest step of any rank
  int64_t behind = 0;              // `step` minus the lowest step of any rank
  std::optional<double> loss;      // loss of the lowest rank that reports a loss
  std::optional<int64_t> samples;  // sum over all ranks; unset: a rank reports no samples
  absl::Duration ago;              // time since the last report of any rank
  // (step, loss) of that rank over all rounds, thinned out. Set only if JobView::nodes is.
  std::vector<std::pair<int64_t, double>> losses;
};

// How a job's time was spent (goodput.h).
struct GoodputView {
  absl::Duration waiting;     // waiting for nodes
  absl::Duration starting;    // from the assignment of the first round until a rank reports a step
  absl::Duration training;    // training, without `lost`
  absl::Duration re_forming;  // from the end of a round until a rank reports a step in the next one
  absl::Duration lost;        // steps that had to be repeated, times the duration of a step

  friend bool operator==(const GoodputView&, const GoodputView&) = default;
};

struct JobView {
  std::string job_id;
  std::string owner;  // see JobRecord::owner
  JobState state = JobState::kWaiting;
  std::string reason;  // why the job is in this state
  uint64_t round = 0;  // latest round; 0: none yet
  int32_t restart_count = 0;
  JobSettings settings = DefaultSettings();
  int32_t node_count = 0;
  int32_t world_size = 0;  // number of workers in `round`
  SteadyTime began;        // when the first node joined
  std::optional<SteadyTime> ended;
  absl::Duration age;              // from `began` until now, or until the end
  std::optional<Verdict> verdict;  // set for an ended job
  std::optional<GoodputView> goodput;
  std::vector<v1::Node> nodes;           // with their secret node ids: show ShownId(node_id) instead
  std::optional<TrainingView> training;  // unset: no rank of the latest round has reported
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_VIEW_H_
