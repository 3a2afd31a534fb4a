#include "rendezvous/core/goodput.h"

#include <algorithm>

namespace ddprun::rendezvous {
namespace {

constexpr double kNewShare = 0.2;  // of the last measurement in the smoothed time of a step

}  // namespace

absl::Duration* Goodput::TimeOf(GoodputView* view) const {
  switch (phase_) {
    case Phase::kWaiting: return &view->waiting;
    case Phase::kStarting: return &view->starting;
    case Phase::kTraining: return &view->training;
    case Phase::kReForming: return &view->re_forming;
    case Phase::kEnded: break;
  }
  return nullptr;
}

void Goodput::Enter(Phase phase, SteadyTime now) {
  if (absl::Duration* time = TimeOf(&past_)) *time += now - since_;
  phase_ = phase;
  since_ = now;
}

void Goodput::OnEvent(Event::Kind kind, SteadyTime now) {
  if (phase_ == Phase::kEnded) return;
  if (IsEnd(kind)) return Enter(Phase::kEnded, now);
  switch (kind) {
    case Event::Kind::kJobWaiting: return Enter(Phase::kWaiting, now);
    case Event::Kind::kRoundStopped:
      last_step_.reset();
      return Enter(trained_ ? Phase::kReForming : Phase::kStarting, now);
    case Event::Kind::kRoundAssigned:
      last_step_.reset();
      if (phase_ != Phase::kWaiting) return;
      return Enter(trained_ ? Phase::kReForming : Phase::kStarting, now);
    default: return;
  }
}

void Goodput::OnStep(int64_t step, SteadyTime now) {
  if (phase_ == Phase::kEnded || phase_ == Phase::kWaiting) return;
  if (phase_ != Phase::kTraining) {
    Enter(Phase::kTraining, now);
    trained_ = true;
    // The step that a rank was in when its round ended was not done.
    past_.lost += step_time_ * static_cast<double>(std::max<int64_t>(highest_ - step, 0));
  }
  if (!last_step_.has_value() || step > *last_step_) {
    if (last_step_.has_value()) {
      const absl::Duration each = (now - last_at_) / static_cast<double>(step - *last_step_);
      step_time_ = step_time_ == absl::ZeroDuration() ? each : step_time_ * (1 - kNewShare) + each * kNewShare;
    }
    last_step_ = step;
    last_at_ = now;
  }
  highest_ = std::max(highest_, step);
}

GoodputView Goodput::At(SteadyTime now) const {
  GoodputView view = past_;
  if (absl::Duration* time = TimeOf(&view)) *time += now - since_;
  view.lost = std::min(view.lost, view.training);
  view.training -= view.lost;
  return view;
}

}  // namespace ddprun::rendezvous
