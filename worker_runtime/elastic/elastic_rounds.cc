#include "worker_runtime/elastic/elastic_rounds.h"

#include <utility>
#include <variant>

#include "absl/status/status.h"

namespace ddprun {

using worker_contract::LauncherLinkMessage;
using worker_contract::LinkCheckpointNow;
using worker_contract::LinkFailed;
using worker_contract::LinkReForm;
using worker_contract::LinkStop;
using worker_contract::LinkSuspend;
using worker_contract::LinkSuspended;

ElasticRounds::~ElasticRounds() { background_.Wait(); }

LauncherLink::Listener ElasticRounds::listener() {
  return {.heard = [this](const LauncherLinkMessage& line) { OnLauncherMessage(line); },
          .closed =
              [this] {
                MutexLock lock(&mutex_);
                tracker_.Close();
                changed_.NotifyAll();
              }};
}

void ElasticRounds::OnLauncherMessage(const LauncherLinkMessage& line) {
  std::optional<std::stop_source> creation;
  std::function<void(const std::string&)> abort;
  std::string reason;
  {
    MutexLock lock(&mutex_);
    if (std::holds_alternative<LinkStop>(line)) {
      tracker_.Stop();
      // Stops only the creation of a group, as the other ranks may be gone. A group in use continues until the ranks
      // have agreed on the stop.
      if (abort_ == nullptr) creation = std::exchange(creation_, std::nullopt);
    } else if (std::holds_alternative<LinkCheckpointNow>(line)) {
      checkpoint_wanted_ = true;
    } else if (const auto* re_form = std::get_if<LinkReForm>(&line)) {
      tracker_.ReForm(*re_form, SteadyNow());
    } else if (const auto* suspend = std::get_if<LinkSuspend>(&line)) {
      const RoundTracker::Abort what = tracker_.Suspend(*suspend, SteadyNow());
      // A group in use is aborted only if the step may not be finished; the creation of one, always.
      if (what == RoundTracker::Abort::kAll || (what == RoundTracker::Abort::kCreation && abort_ == nullptr)) {
        creation = creation_;
        abort = std::exchange(abort_, nullptr);
        reason = suspend->reason;
      }
    }
    changed_.NotifyAll();
  }
  if (creation) creation->request_stop();
  // Not on this thread: an abort may wait for a store that can't be reached.
  if (abort != nullptr) InBackground([abort, reason] { abort(reason); });
}

bool ElasticRounds::BeginGroup(const std::stop_source& creation) {
  MutexLock lock(&mutex_);
  creation_ = creation;
  abort_ = nullptr;
  return !tracker_.suspended() && !tracker_.stopping();
}

bool ElasticRounds::UseGroup(std::function<void(const std::string&)> abort) {
  MutexLock lock(&mutex_);
  // A stop that arrived after the group was created has permanently cancelled its waits for the store.
  if (tracker_.suspended() || !creation_.has_value()) return false;
  abort_ = std::move(abort);
  return true;
}

void ElasticRounds::EndGroup() {
  MutexLock lock(&mutex_);
  creation_ = std::nullopt;
  abort_ = nullptr;
}

bool ElasticRounds::suspended() const {
  MutexLock lock(&mutex_);
  return tracker_.suspended();
}

std::string ElasticRounds::suspend_reason() const {
  MutexLock lock(&mutex_);
  return tracker_.suspend().has_value() ? tracker_.suspend()->reason : "";
}

bool ElasticRounds::TakeCheckpointRequest() {
  MutexLock lock(&mutex_);
  return std::exchange(checkpoint_wanted_, false);
}

absl::StatusOr<LinkReForm> ElasticRounds::AwaitNextRound(std::optional<int64_t> step, const std::string& why) {
  if (link_ == nullptr) return absl::UnavailableError("there is no launcher to start another round");
  MutexLock lock(&mutex_);
  tracker_.Leave(SteadyNow());
  for (;;) {
    const RoundTracker::Action action = tracker_.Next(SteadyNow());
    switch (action.kind) {
      case RoundTracker::Action::kSendSuspended: link_->SendToLauncher(LinkSuspended{tracker_.round(), step}); break;
      case RoundTracker::Action::kSendFailed: link_->SendToLauncher(LinkFailed{tracker_.round(), why}); break;
      case RoundTracker::Action::kReForm: return action.re_form;
      case RoundTracker::Action::kWait: changed_.WaitUntil(&mutex_, action.deadline); break;
      case RoundTracker::Action::kEndClosed:
        return absl::UnavailableError("the launcher ended while this worker waited for the next round");
      case RoundTracker::Action::kEndStopped:
        return absl::CancelledError("the launcher stops this worker, which was waiting for the next round");
    }
  }
}

void ElasticRounds::SendToLauncher(const worker_contract::WorkerLinkMessage& line) {
  if (link_ != nullptr) link_->SendToLauncher(line);
}

std::optional<SteadyTime> ElasticRounds::suspended_at() const {
  MutexLock lock(&mutex_);
  return tracker_.suspended_at();
}

std::optional<SteadyTime> ElasticRounds::re_formed_at() const {
  MutexLock lock(&mutex_);
  return tracker_.re_formed_at();
}

}  // namespace ddprun
