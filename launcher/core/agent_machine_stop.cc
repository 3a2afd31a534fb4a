// How a node stops: signals, the end of its workers, and what follows it.
#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/core/agent_machine.h"
#include "launcher/core/duration_text.h"
#include "rendezvous/base/signal_name.h"

namespace ddprun::launcher {

bool AgentMachine::Delivered(const Signal& signal) const {
  return signal.from_batch_system && settings_.batch && settings_.batch->signals_every_process;
}

void AgentMachine::OnWarning(const Signal& signal, Effects* effects) {
  std::string text = absl::StrCat("received ", signal.text);
  if (running_ == 0) {
    absl::StrAppend(&text, "; no workers to pass it on to");
  } else if (Delivered(signal)) {
    absl::StrAppend(&text, "; the workers have it too");
  } else {
    absl::StrAppend(&text, "; passed on to the workers");
    effects->push_back(effect::SignalWorkers{signal.number});
  }
  if (settings_.batch) {
    absl::StrAppend(&text, "; ",
                    signal.time_left == absl::InfiniteDuration()
                        ? "no end time known"
                        : absl::StrCat("the job's time ends in ", RemainingText(signal.time_left)),
                    "; at its end workers have ", absl::FormatDuration(settings_.shutdown_timeout), " from SIGTERM on");
  }
  effects->push_back(effect::Print{LogLevel::kWarning, std::move(text)});
}

void AgentMachine::OnSignal(const Signal& signal, SteadyTime now, Effects* effects) {
  if (state_ == State::kDone) return;
  const auto& warnings = settings_.warning_signals;
  if (std::find(warnings.begin(), warnings.end(), signal.number) != warnings.end()) return OnWarning(signal, effects);
  if (exit_) {
    // Asked a second time, or while stopping for another reason: no more patience. But a batch system that stops the
    // job because it ends is not asking, and sends its own SIGKILL.
    if (state_ == State::kStopping && !signal.from_batch_system) {
      if (running_ > 0) kill_at_ = now;
      if (leave_at_ != SteadyTime::InfiniteFuture()) leave_at_ = now;
      OnDeadline(now, effects);
    }
    return;
  }
  std::string text = absl::StrCat("received ", signal.text);
  if (running_ > 0) {
    absl::StrAppend(&text, "; workers have ", absl::FormatDuration(settings_.shutdown_timeout), " to save and end");
  }
  effects->push_back(effect::Print{LogLevel::kWarning, std::move(text)});
  exit_ = effect::Exit{128 + signal.number, std::nullopt, {}};
  leave_reason_ = absl::StrCat(settings_.join.host, " received ", SignalName(signal.number));
  if (signal.from_batch_system && settings_.batch && settings_.join.settings.max_nodes > 1) {
    leave_at_ = now + kSignalSpread;
  } else {
    SayLeave(leave_reason_, now, effects);
  }
  Stop(Delivered(signal) ? std::nullopt : std::optional<int>(signal.number), now, effects);
}

void AgentMachine::SayLeave(const std::string& reason, SteadyTime now, Effects* effects) {
  if (link_ == Link::kDown) return;
  leaving_ = running_ > 0;
  if (leaving_ && link_ == Link::kUp && heartbeat_interval_ != absl::InfiniteDuration()) {
    next_heartbeat_ = now + heartbeat_interval_;
    silent_at_ = lease_.SilentAt(now);
  }
  effects->push_back(effect::Send{rendezvous::Leave{reason, leaving_}});
}

void AgentMachine::OnFatal(const std::string& reason, SteadyTime now, Effects* effects) {
  if (state_ == State::kDone || exit_) return;
  effects->push_back(effect::Print{LogLevel::kError, reason});
  SayLeave(absl::StrCat(settings_.join.host, ": ", reason), now, effects);
  exit_ = effect::Exit{1, std::nullopt, {}};
  Stop(SIGTERM, now, effects);
}

void AgentMachine::Stop(std::optional<int> signal, SteadyTime now, Effects* effects) {
  missing_at_ = next_report_ = store_late_at_ = held_until_ = SteadyTime::InfiniteFuture();
  held_.reset();
  if (exit_) give_up_at_ = SteadyTime::InfiniteFuture();
  if (exit_ && !leaving_) next_heartbeat_ = silent_at_ = SteadyTime::InfiniteFuture();
  if (running_ == 0) return OnStopped(now, effects);
  if (state_ == State::kStopping) return;  // on the way; exit_ may have been set meanwhile
  state_ = State::kStopping;
  killed_ = false;
  if (settings_.shutdown_timeout > absl::ZeroDuration() && signal) {
    effects->push_back(effect::SignalWorkers{*signal});
    effects->push_back(effect::SignalWorkers{SIGCONT});
  }
  kill_at_ = now + settings_.shutdown_timeout;
  if (KillAt() <= now) OnDeadline(now, effects);
}

void AgentMachine::StopBecauseCutOff(SteadyTime now, Effects* effects) {
  effects->push_back(effect::Print{
      LogLevel::kWarning, absl::StrCat("cut off from the rendezvous server at ", settings_.server, " for ",
                                       absl::FormatDuration(absl::Trunc(now - lease_.since(), absl::Milliseconds(100))),
                                       ": stopping this node's workers, as the other nodes may go on without them")});
  Stop(SIGTERM, now, effects);
}

SteadyTime AgentMachine::WorkersMayRunUntil() const {
  // After a verdict no round of this job follows.
  const bool bounded = running_ > 0 && !(exit_ && exit_->verdict);
  return bounded ? lease_.KillAt() : SteadyTime::InfiniteFuture();
}

SteadyTime AgentMachine::CutOffAt() const {
  return state_ == State::kRunning ? lease_.StopAt() : SteadyTime::InfiniteFuture();
}

SteadyTime AgentMachine::KillAt() const {
  if (state_ != State::kStopping || killed_) return kill_at_;
  return std::min(kill_at_, WorkersMayRunUntil());
}

void AgentMachine::OnStopped(SteadyTime now, Effects* effects) {
  kill_at_ = SteadyTime::InfiniteFuture();
  if (leave_at_ != SteadyTime::InfiniteFuture()) {
    state_ = State::kStopping;
    return;
  }
  effects->push_back(effect::SweepOrphans{});
  if (exit_) {
    state_ = State::kDone;
    effects->push_back(effect::ShowStatus{""});
    effects->push_back(*exit_);
    return;
  }
  effects->push_back(effect::OpenStore{});
  BecomeIdle(now);
  if (link_ == Link::kUp) effects->push_back(effect::Send{rendezvous::Ready{current_->round, 0}});
}

}  // namespace ddprun::launcher
