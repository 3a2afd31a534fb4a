#ifndef DDPRUN_WORKER_RUNTIME_ELASTIC_ELASTIC_ROUNDS_H_
#define DDPRUN_WORKER_RUNTIME_ELASTIC_ELASTIC_ROUNDS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/background_calls.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "worker_contract/worker_link.h"
#include "worker_runtime/base/launcher_link.h"
#include "worker_runtime/elastic/core/round_tracker.h"

namespace ddprun {

// Runs a RoundTracker in two threads: the worker link's thread, which learns that a round is over and aborts the
// current group, and the training thread, which leaves the group and waits for the next round. Without LibTorch.
// Threads: `listener` is for the link's thread, everything else for the training thread.
class ElasticRounds {
 public:
  // `round` comes from the environment; for `patience` see RoundTracker.
  explicit ElasticRounds(uint64_t round, absl::Duration patience = RoundTracker::kPatience)
      : tracker_(round, patience) {}
  // Waits for all background threads.
  ~ElasticRounds();
  ElasticRounds(const ElasticRounds&) = delete;
  ElasticRounds& operator=(const ElasticRounds&) = delete;

  LauncherLink::Listener listener();
  // `link`, which must outlive this object, was made with the listener; nullptr: no link.
  void set_link(LauncherLink* link) { link_ = link; }
  // True if a launcher is connected that could start another round.
  bool linked() const { return link_ != nullptr && link_->connected(); }

  // ---- in a round ----

  // Call before a group is created. From then on a suspend, or the launcher's stop of this worker, requests a stop of
  // `creation`. False: the round is over, or this worker is being stopped.
  bool BeginGroup(const std::stop_source& creation);
  // Call when the group is created. From then on a suspend calls `abort` with the reason, on a thread of its own, after
  // requesting the stop, which ends waits for the group's store. False: the round is over, or the stop of `creation`
  // was requested, and `abort` will not be called.
  bool UseGroup(std::function<void(const std::string& reason)> abort);
  // Call when the group is no longer used.
  void EndGroup();

  // True if the launcher ended this round, which is to be left at once or at the end of the step.
  bool suspended() const;
  std::string suspend_reason() const;  // empty: the round is not suspended
  // True if the launcher has requested a checkpoint since the last call.
  bool TakeCheckpointRequest();

  // ---- between two rounds ----

  // Call after leaving the group. Informs the launcher, and waits for the next round. `step`: committed; nullopt: this
  // worker holds no state. `why`: reason to report if the launcher does not know that the round is over.
  // Errors: Unavailable: the launcher is gone; Cancelled: it stops this worker.
  absl::StatusOr<worker_contract::LinkReForm> AwaitNextRound(std::optional<int64_t> step, const std::string& why);

  void SendToLauncher(const worker_contract::WorkerLinkMessage& line);

  // Arrival of the `suspend` of the last round that was left, and of the `re-form`.
  std::optional<SteadyTime> suspended_at() const;
  std::optional<SteadyTime> re_formed_at() const;

  // Runs `function` on a thread of its own.
  void InBackground(std::function<void()> function) { background_.Start(std::move(function)); }

 private:
  void OnLauncherMessage(const worker_contract::LauncherLinkMessage& line);

  LauncherLink* link_ = nullptr;
  mutable Mutex mutex_;
  CondVar changed_;
  RoundTracker tracker_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::stop_source> creation_ ABSL_GUARDED_BY(mutex_);
  std::function<void(const std::string&)> abort_ ABSL_GUARDED_BY(mutex_);
  bool checkpoint_wanted_ ABSL_GUARDED_BY(mutex_) = false;
  BackgroundCalls background_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_ELASTIC_ELASTIC_ROUNDS_H_
