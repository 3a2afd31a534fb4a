#include "rendezvous/core/goodput.h"

#include <algorithm>
#include <utility>

#include "proto/time.h"
#include "rendezvous/core/event.h"

namespace ddprun::rendezvous {
namespace {

using v1::GoodputRecord;

constexpr double kNewShare = 0.2;  // weight of the latest measurement in the smoothed duration of a step

// Adds to the time of this phase. An ended job takes no time.
void Add(absl::Duration by, GoodputRecord::Phase phase, v1::Goodput* times) {
  google::protobuf::Duration* time = nullptr;
  switch (phase) {
    case GoodputRecord::PHASE_WAITING: time = times->mutable_waiting(); break;
    case GoodputRecord::PHASE_STARTING: time = times->mutable_starting(); break;
    case GoodputRecord::PHASE_TRAINING: time = times->mutable_training(); break;
    case GoodputRecord::PHASE_RE_FORMING: time = times->mutable_re_forming(); break;
    default: return;
  }
  *time = FromDuration(ToDuration(*time) + by);
}

GoodputRecord FirstRecord() {
  GoodputRecord record;
  record.set_phase(GoodputRecord::PHASE_WAITING);
  record.set_highest_step(-1);
  return record;
}

}  // namespace

Goodput::Goodput(SteadyTime created) : Goodput(FirstRecord(), created) { resumed_ = false; }

Goodput::Goodput(GoodputRecord record, SteadyTime began)
    : record_(std::move(record)), since_(began - ToDuration(record_.ago())), resumed_(true) {
  record_.clear_ago();
  // Sets all fields, so that zeros are shown as well.
  v1::Goodput* const times = record_.mutable_times();
  times->mutable_waiting();
  times->mutable_starting();
  times->mutable_training();
  times->mutable_re_forming();
  times->mutable_lost();
}

void Goodput::Enter(Phase phase, SteadyTime now) {
  Add(now - since_, record_.phase(), record_.mutable_times());
  if (std::exchange(resumed_, false)) {
    unheard_ = now - since_;
    unheard_phase_ = record_.phase();
  }
  record_.set_phase(phase);
  since_ = now;
}

void Goodput::OnEvent(absl::string_view kind, SteadyTime now) {
  if (record_.phase() == GoodputRecord::PHASE_ENDED) return;
  if (IsEnd(kind)) return Enter(GoodputRecord::PHASE_ENDED, now);
  if (kind == event_kind::kJobWaiting) return Enter(GoodputRecord::PHASE_WAITING, now);
  const bool assigned = kind == event_kind::kRoundAssigned;
  if (!assigned && kind != event_kind::kRoundStopped) return;
  last_step_.reset();
  if (assigned && record_.phase() != GoodputRecord::PHASE_WAITING) return;
  Enter(record_.trained() ? GoodputRecord::PHASE_RE_FORMING : GoodputRecord::PHASE_STARTING, now);
}

void Goodput::TakeUnheard(int64_t step) {
  const absl::Duration unheard = std::exchange(unheard_, absl::ZeroDuration());
  // A round resumes at the highest recorded step at best, so a later step means that workers trained since the record.
  const bool ran = unheard_phase_ == GoodputRecord::PHASE_STARTING || unheard_phase_ == GoodputRecord::PHASE_RE_FORMING;
  if (!ran || step - 1 <= record_.highest_step()) return;
  Add(-unheard, unheard_phase_, record_.mutable_times());
  Add(unheard, GoodputRecord::PHASE_TRAINING, record_.mutable_times());
}

void Goodput::OnStep(int64_t step, SteadyTime now) {
  if (record_.phase() == GoodputRecord::PHASE_ENDED || record_.phase() == GoodputRecord::PHASE_WAITING) return;
  absl::Duration step_time = ToDuration(record_.step_time());
  if (record_.phase() != GoodputRecord::PHASE_TRAINING) {
    Enter(GoodputRecord::PHASE_TRAINING, now);
    TakeUnheard(step);
    record_.set_trained(true);
    // The steps between the new one and the highest one are repeated. The step that a rank was in when its round ended
    // was not complete. Workers may report any step, so the lost time is bounded by the time trained.
    const absl::Duration lost = step_time * static_cast<double>(std::max<int64_t>(record_.highest_step() - step, 0));
    v1::Goodput* const times = record_.mutable_times();
    *times->mutable_lost() = FromDuration(std::min(ToDuration(times->lost()) + lost, ToDuration(times->training())));
  }
  if (!last_step_.has_value() || step > *last_step_) {
    if (last_step_.has_value()) {
      const absl::Duration each = (now - last_at_) / static_cast<double>(step - *last_step_);
      step_time = step_time == absl::ZeroDuration() ? each : step_time * (1 - kNewShare) + each * kNewShare;
      *record_.mutable_step_time() = FromDuration(step_time);
    }
    last_step_ = step;
    last_at_ = now;
  }
  record_.set_highest_step(std::max(record_.highest_step(), step));
}

v1::Goodput Goodput::At(SteadyTime now) const {
  v1::Goodput times = Record(now).times();
  const absl::Duration training = ToDuration(times.training());
  const absl::Duration lost = std::min(ToDuration(times.lost()), training);
  *times.mutable_lost() = FromDuration(lost);
  *times.mutable_training() = FromDuration(training - lost);
  return times;
}

GoodputRecord Goodput::Record(SteadyTime now) const {
  GoodputRecord record = record_;
  Add(now - since_, record.phase(), record.mutable_times());
  return record;
}

}  // namespace ddprun::rendezvous
