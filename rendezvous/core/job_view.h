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

// A job as users see it: Job of proto/rendezvous.proto as plain values, with its nodes as they are there.
namespace ddprun::rendezvous {

// A job's training in a few numbers.
struct TrainingView {
  int64_t step = 0;                // of the rank that is furthest
  int64_t behind = 0;              // steps by which the last rank is behind it
  std::optional<double> loss;      // of the lowest rank that reported one
  std::optional<int64_t> samples;  // of all ranks; unset: a rank that reported does not say
  absl::Duration ago;              // since any rank reported anything
  // Steps and losses of that rank, over all rounds, thinned out. Only with the nodes.
  std::vector<std::pair<int64_t, double>> losses;
};

// Where a job's time went. If older servers without goodput ran the job, counting began with the first newer one.
struct GoodputView {
  absl::Duration waiting;     // for nodes
  absl::Duration starting;    // from the first round until a rank reports a step
  absl::Duration training;    // without `lost`
  absl::Duration re_forming;  // from the end of a round until a rank reports a step of the next one
  absl::Duration lost;        // steps that were made again, each for as long as steps take

  friend bool operator==(const GoodputView&, const GoodputView&) = default;
};

struct JobView {
  std::string job_id;
  std::string owner;  // as JobRecord has it
  JobState state = JobState::kWaiting;
  std::string reason;  // why it is in this state
  uint64_t round = 0;  // the newest one given out; 0 before the first
  int32_t restart_count = 0;
  JobSettings settings = DefaultSettings();
  int32_t node_count = 0;
  int32_t world_size = 0;  // of `round`
  SteadyTime began;        // when its first node joined
  std::optional<SteadyTime> ended;
  absl::Duration age;              // since it began, until now or until it ended
  std::optional<Verdict> verdict;  // of an ended job
  std::optional<GoodputView> goodput;
  std::vector<v1::Node> nodes;           // with the ids with which they join, which no user may see (ShownId)
  std::optional<TrainingView> training;  // unset: no rank of the latest round has reported anything
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_VIEW_H_
