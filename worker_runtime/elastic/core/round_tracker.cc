#include "worker_runtime/elastic/core/round_tracker.h"

namespace ddprun {

using worker_contract::LinkReForm;
using worker_contract::LinkSuspend;

RoundTracker::Abort RoundTracker::Suspend(const LinkSuspend& suspend, SteadyTime now) {
  if (suspend.round < round_) return Abort::kNothing;
  if (next_.has_value()) {
    if (suspend.round < next_->round) return Abort::kNothing;
    // The named round has ended before the training thread entered it.
    round_ = next_->round;
    next_ = std::nullopt;
    suspend_ = std::nullopt;
    sent_suspended_ = false;
    sent_failed_ = false;
  }
  if (!suspend_.has_value()) suspended_at_ = now;
  // A later suspend may be more urgent, but not less.
  if (!suspend_.has_value() || suspend_->at_step_end) suspend_ = suspend;
  return suspend_->at_step_end ? Abort::kCreation : Abort::kAll;
}

bool RoundTracker::ReForm(const LinkReForm& re_form, SteadyTime now) {
  if (re_form.round <= (next_.has_value() ? next_->round : round_)) return false;
  next_ = re_form;
  re_formed_at_ = now;
  return true;
}

void RoundTracker::Leave(SteadyTime now) {
  if (!left_at_.has_value()) left_at_ = now;
}

RoundTracker::Action RoundTracker::Next(SteadyTime now) {
  if (stopping_) return {.kind = Action::kEndStopped};
  if (next_.has_value()) {
    Action action{.kind = Action::kReForm, .re_form = *next_};
    round_ = next_->round;
    next_ = std::nullopt;
    suspend_ = std::nullopt;
    left_at_ = std::nullopt;
    sent_suspended_ = false;
    sent_failed_ = false;
    return action;
  }
  if (closed_) return {.kind = Action::kEndClosed};
  if (suspend_.has_value()) {
    if (sent_suspended_) return {};
    sent_suspended_ = true;
    return {.kind = Action::kSendSuspended};
  }
  if (sent_failed_) return {};
  if (now < *left_at_ + patience_) return {.deadline = *left_at_ + patience_};
  sent_failed_ = true;
  return {.kind = Action::kSendFailed};
}

}  // namespace ddprun
