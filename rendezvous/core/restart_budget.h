#ifndef DDPRUN_RENDEZVOUS_CORE_RESTART_BUDGET_H_
#define DDPRUN_RENDEZVOUS_CORE_RESTART_BUDGET_H_

#include <cstddef>
#include <cstdint>
#include <deque>

#include "absl/time/time.h"
#include "base/steady_time.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// PURE: how often the workers of one job may be started again because one failed, and when (protocol 3.5): one budget
// for the whole job, whichever node the failure was on. Value type.
class RestartBudget {
 public:
  // A restart that comes later than this after the one before is the first of a series again.
  static constexpr absl::Duration kSeriesGap = absl::Minutes(10);
  static constexpr absl::Duration kMaxBackoff = absl::Minutes(5);  // unless the first one is longer

  enum class Answer {
    kRestart,     // one restart was taken
    kSpent,       // none is left
    kNoProgress,  // the same rank has failed at the same step too often in a row
  };

  // Uses the settings' fields on restarts.
  explicit RestartBudget(const JobSettings& settings);

  // Asks for a restart because of this failure. Unless the answer is kRestart the budget is of no more use.
  Answer Charge(const WorkerFailure& failure, SteadyTime now);

  // From the charge at `now` on, how long to wait before the workers are started.
  absl::Duration Backoff() const;

  // A node or a record reports this many restarts to a restarted server. Returns true if that is more than was known.
  // Their times are not known: with a window they count as long ago. At most kMaxRestarts count.
  bool LearnUsed(int32_t used);

  // Fills in the record except `wait`, with at most this many charges, the newest ones.
  static constexpr size_t kMaxRecorded = 1000;
  RestartRecord Record(SteadyTime now) const;
  // Restores a record at `now`. The number of charges is learnt with LearnUsed.
  void Restore(const RestartRecord& record, SteadyTime now);

  int32_t used() const { return used_; }  // in the job's life
  int32_t max() const { return max_; }
  absl::Duration window() const { return window_; }
  int32_t failures_at_step() const { return at_step_; }

 private:
  // True if the failure is of the same rank at the same step as the last one. Counts such failures.
  bool IsStuck(const WorkerFailure& failure);

  int32_t max_;
  absl::Duration window_;
  absl::Duration backoff_;
  int32_t max_at_step_;
  int32_t used_ = 0;
  std::deque<SteadyTime> in_window_;  // of restarts, if there is a window
  SteadyTime last_ = SteadyTime::InfinitePast();
  int32_t series_ = 0;  // restarts in it
  int32_t rank_ = -1;   // that failed last
  int64_t step_ = -1;   // at which it did; -1: not known
  int32_t at_step_ = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_RESTART_BUDGET_H_
