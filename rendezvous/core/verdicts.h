#ifndef DDPRUN_RENDEZVOUS_CORE_VERDICTS_H_
#define DDPRUN_RENDEZVOUS_CORE_VERDICTS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/messages.h"
#include "worker_contract/exit_codes.h"

// PURE: what follows a worker's failure: a restart, which RestartBudget charges, or one of the verdicts with which a
// job ends (protocol 5).
namespace ddprun::rendezvous {

using worker_contract::kExitNoProgress;

// The restarts of one job (protocol 3.5): decides if a failure may be followed by a restart, charges it, and
// gives the backoff before the next round. One budget for the whole job, whichever node the failure was on. Value type.
class RestartBudget {
 public:
  // Charges at most this far apart belong to one series, in which the backoff doubles.
  static constexpr absl::Duration kSeriesGap = absl::Minutes(10);
  static constexpr absl::Duration kMaxBackoff = absl::Minutes(5);  // unless restart_backoff is longer

  enum class Answer {
    kRestart,     // one restart was charged
    kSpent,       // the restart limit is reached
    kNoProgress,  // the same rank failed at the same step max_failures_at_step times in a row
  };

  // Uses max_restarts, restart_window, restart_backoff and max_failures_at_step of the settings.
  explicit RestartBudget(const JobSettings& settings);

  // Charges a restart for this failure. After any answer except kRestart the job ends, and the budget must not be used.
  Answer Charge(const WorkerFailure& failure, SteadyTime now);

  // Returns how long after the latest charge the next round may start.
  absl::Duration Backoff() const;

  // Adopts the number of charges that a node or a record reports to a restarted server, if it is higher. Returns true
  // if it was. The times of these charges are unknown, so they do not count within the restart window.
  bool LearnUsed(int32_t used);

  // Returns the record of the budget, except RestartRecord::wait, with at most kMaxRecorded charges, the newest ones.
  static constexpr size_t kMaxRecorded = 1000;
  RestartRecord Record(SteadyTime now) const;
  // Restores a record, apart from the number of charges, which LearnUsed restores.
  void Restore(const RestartRecord& record, SteadyTime now);

  int32_t used() const { return used_; }  // number of charges in the job's life
  int32_t max() const { return max_; }
  absl::Duration window() const { return window_; }
  int32_t failures_at_step() const { return at_step_; }

 private:
  // Counts failures of the same rank at the same step in a row. Returns true if their limit is reached.
  bool IsStuck(const WorkerFailure& failure);

  int32_t max_;
  absl::Duration window_;
  absl::Duration backoff_;
  int32_t max_at_step_;
  int32_t used_ = 0;
  std::deque<SteadyTime> in_window_;              // times of charges; empty without a restart window
  SteadyTime last_ = SteadyTime::InfinitePast();  // time of the last charge
  int32_t series_ = 0;                            // number of charges in the current series
  int32_t rank_ = -1;                             // rank of the last failure
  int64_t step_ = -1;                             // step of the last failure; -1: unknown
  int32_t at_step_ = 0;                           // failures of rank_ at step_ in a row
};

// Decides what follows from a worker's failure (protocol 3.5). Returns nullopt if the job restarts, after charging one
// restart to `budget`. Otherwise returns the verdict that ends the job: the failure is non-restartable, the restart
// limit is reached, or a rank failed too often at the same step.
std::optional<Verdict> Judge(const WorkerFailure& failure, RestartBudget* budget, SteadyTime now);

Verdict Succeeded(int32_t world_size);

// Returns the verdict of a failed job. All launchers exit with the exit status of `cause`, or 1 without a cause.
Verdict Failed(std::string reason, std::optional<WorkerFailure> cause);

// Returns the verdict for the launcher of a kicked node.
Verdict Kicked(absl::string_view actor);

// Returns the verdict of a job whose last launcher left, for display: no launcher is left to receive it.
Verdict AllLeft(absl::string_view last, const WorkerFailure& loss);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_VERDICTS_H_
