#include "rendezvous/core/goodput.h"

#include <algorithm>
#include <utility>

namespace ddprun::rendezvous {
namespace {

constexpr double kNewShare = 0.2;  // weight of the latest measurement in the smoothed duration of a step

}  // namespace

Goodput::Goodput(const GoodputRecord& record, SteadyTime began)
    : phase_(record.phase),
      since_(began - record.ago),
      past_(record.times),
      resumed_(true),
      trained_(record.trained),
      highest_(record.highest_step),
      step_time_(record.step_time) {}

absl::Duration* Goodput::TimeOf(Phase phase, GoodputView* view) {
  switch (phase) {
    case Phase::kWaiting: return &view->waiting;
    case Phase::kStarting: return &view->starting;
    case Phase::kTraining: return &view->training;
    case Phase::kReForming: return &view->re_forming;
    case Phase::kEnded: break;
  }
  return nullptr;
}

void Goodput::Enter(Phase phase, SteadyTime now) {
  if (absl::Duration* time = TimeOf(phase_, &past_)) *time += now - since_;
  if (std::exchange(resumed_, false)) {
    unheard_ = now - since_;
    unheard_phase_ = phase_;
  }
  phase_ = phase;
  since_ = now;
}

void Goodput::OnEvent(absl::string_view kind, SteadyTime now) {
  if (phase_ == Phase::kEnded) return;
  if (IsEnd(kind)) return Enter(Phase::kEnded, now);
  if (kind == event_kind::kJobWaiting) return Enter(Phase::kWaiting, now);
  const bool assigned = kind == event_kind::kRoundAssigned;
  if (!assigned && kind != event_kind::kRoundStopped) return;
  last_step_.reset();
  if (!assigned || phase_ == Phase::kWaiting) Enter(trained_ ? Phase::kReForming : Phase::kStarting, now);
}

void Goodput::TakeUnheard(int64_t step) {
  const absl::Duration unheard = std::exchange(unheard_, absl::ZeroDuration());
  // A round resumes at the highest recorded step at best, so a later step means that workers trained since the record.
  const bool ran = unheard_phase_ == Phase::kStarting || unheard_phase_ == Phase::kReForming;
  if (!ran || step - 1 <= highest_) return;
  *TimeOf(unheard_phase_, &past_) -= unheard;
  past_.training += unheard;
}

void Goodput::OnStep(int64_t step, SteadyTime now) {
  if (phase_ == Phase::kEnded || phase_ == Phase::kWaiting) return;
  if (phase_ != Phase::kTraining) {
    Enter(Phase::kTraining, now);
    TakeUnheard(step);
    trained_ = true;
    // The steps between the new one and the highest one are repeated. The step that a rank was in when its round ended
    // was not complete. Workers may report any step, so the lost time is bounded by the time trained.
    past_.lost += step_time_ * static_cast<double>(std::max<int64_t>(highest_ - step, 0));
    past_.lost = std::min(past_.lost, past_.training);
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
  if (absl::Duration* time = TimeOf(phase_, &view)) *time += now - since_;
  view.lost = std::min(view.lost, view.training);
  view.training -= view.lost;
  return view;
}

GoodputRecord Goodput::Record(SteadyTime now) const {
  GoodputRecord record{
      .times = past_, .phase = phase_, .trained = trained_, .highest_step = highest_, .step_time = step_time_};
  if (absl::Duration* time = TimeOf(phase_, &record.times)) *time += now - since_;
  return record;
}

}  // namespace ddprun::rendezvous
