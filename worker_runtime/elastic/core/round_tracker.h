#ifndef DDPRUN_WORKER_RUNTIME_ELASTIC_CORE_ROUND_TRACKER_H_
#define DDPRUN_WORKER_RUNTIME_ELASTIC_CORE_ROUND_TRACKER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/steady_time.h"
#include "worker_contract/worker_link.h"

namespace ddprun {

// PURE: an elastic worker's rounds, and its actions between two of them (docs/design/0012-elastic-recovery.md).
// Messages of the launcher and calls of the training thread are events; the shell (ElasticRounds) performs the returned
// actions.
//
//   in a round ---suspend, or its group failed---> leaving ---re-form---> in the next round
//
// Messages of an older round are dropped, and each may be repeated. Thread-compatible.
class RoundTracker {
 public:
  // How long a worker whose group failed waits for `suspend` before it sends `failed`. The launcher learns of most
  // failures sooner, and with more detail.
  static constexpr absl::Duration kPatience = absl::Seconds(2);

  // `round` comes from the environment; the worker begins in it.
  explicit RoundTracker(uint64_t round, absl::Duration patience = kPatience) : patience_(patience), round_(round) {}

  // ---- events of the link ----

  // Required action on the current group, or on its creation.
  enum class Abort { kNothing, kCreation, kAll };
  Abort Suspend(const worker_contract::LinkSuspend& suspend, SteadyTime now);
  // Returns true if the message names a new round.
  bool ReForm(const worker_contract::LinkReForm& re_form, SteadyTime now);
  // The link is closed, or no launcher was ever connected.
  void Close() { closed_ = true; }
  // The launcher stops this worker.
  void Stop() { stopping_ = true; }

  // ---- the training thread in a round ----

  // The current round, or the one that was left last.
  uint64_t round() const { return round_; }
  // True if this round is over: leave it, at once or at the end of the step.
  bool suspended() const { return suspend_.has_value() || next_.has_value(); }
  bool aborted() const { return next_.has_value() || (suspend_.has_value() && !suspend_->at_step_end); }
  const std::optional<worker_contract::LinkSuspend>& suspend() const { return suspend_; }
  bool closed() const { return closed_; }
  // The launcher stops this worker.
  bool stopping() const { return stopping_; }

  // ---- the training thread between two rounds ----

  // The training thread has left its group.
  void Leave(SteadyTime now);

  struct Action {
    enum Kind {
      kSendSuspended,  // once for each round
      kSendFailed,     // once for each round
      kReForm,         // the next round is `re_form`; the tracker has entered it
      kWait,           // wait for an event, until `deadline` at most
      kEndClosed,      // no other round can follow
      kEndStopped,     // the launcher stops this worker
    };
    Kind kind = kWait;
    worker_contract::LinkReForm re_form;
    SteadyTime deadline = SteadyTime::InfiniteFuture();
  };
  // REQUIRES: Leave was called.
  Action Next(SteadyTime now);

  // ---- for measurements ----

  // Arrival of the `suspend` of the round left last, and of the `re-form` that followed. Not set: did not arrive.
  std::optional<SteadyTime> suspended_at() const { return suspended_at_; }
  std::optional<SteadyTime> re_formed_at() const { return re_formed_at_; }

 private:
  const absl::Duration patience_;
  uint64_t round_;
  std::optional<worker_contract::LinkSuspend> suspend_;  // the suspend of `round_`
  std::optional<worker_contract::LinkReForm> next_;      // not returned yet
  std::optional<SteadyTime> left_at_;                    // set while the training thread waits
  bool sent_suspended_ = false;
  bool sent_failed_ = false;
  bool closed_ = false;
  bool stopping_ = false;
  std::optional<SteadyTime> suspended_at_;
  std::optional<SteadyTime> re_formed_at_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_ELASTIC_CORE_ROUND_TRACKER_H_
