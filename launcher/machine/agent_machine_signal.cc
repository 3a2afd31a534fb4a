// Signals to the launcher, and its exit.
#include <signal.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/process.h"
#include "launcher/machine/agent_machine.h"
#include "launcher/report/wait_text.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {
void AgentMachine::OnSignal(const Signal& signal, SteadyTime now, Effects* effects) {
  if (state_ == State::kDone) return;
  const auto& warnings = settings_.warning_signals;
  if (std::find(warnings.begin(), warnings.end(), signal.number) != warnings.end())
    return OnWarning(signal, now, effects);
  if (exit_) {
    // Asked a second time, or while stopping for another reason: no more patience. But a batch system that stops the
    // job because it ends is not asking, and sends its own SIGKILL.
    if (state_ == State::kStopping && !signal.from_batch_system) {
      stopping_.Hurry(now);
      if (leave_.running()) leave_.Set(now);
      OnDeadline(now, effects);
    }
    return;
  }
  std::string text = absl::StrCat("received ", signal.text);
  if (workers_.AnyAlive()) {
    absl::StrAppend(&text, "; workers have ", absl::FormatDuration(settings_.shutdown_timeout), " to save and end");
    if (signal.number == SIGINT) absl::StrAppend(&text, "; press Ctrl-C again to kill them now");
  }
  effects->push_back(effect::Print{LogLevel::kWarning, std::move(text)});
  leave_signal_ = signal.number;
  if (signal.from_batch_system && settings_.batch && settings_.join.settings().max_nodes() > 1) {
    leave_.Set(now + kSignalSpread);
  } else {
    SendLeaveForSignal(now, effects);
  }
  StopAndExit({worker_contract::ExitCodeOfSignal(signal.number), std::nullopt, {}},
              Delivered(signal) ? std::nullopt : std::optional<int>(signal.number),
              absl::StrCat("received ", signal.text), now, effects);
}

void AgentMachine::OnWarning(const Signal& signal, SteadyTime now, Effects* effects) {
  std::string text = absl::StrCat("received ", signal.text);
  const LocalRanks workers = workers_.Alive();
  if (workers.empty()) {
    absl::StrAppend(&text, "; no workers to pass it on to");
  } else if (Delivered(signal)) {
    absl::StrAppend(&text, "; the workers have it too");
  } else {
    absl::StrAppend(&text, "; passed on to the workers");
    effects->push_back(effect::SignalWorkers{signal.number, workers});
  }
  if (settings_.batch) {
    absl::StrAppend(&text, "; ",
                    signal.time_left == absl::InfiniteDuration()
                        ? "no end time known"
                        : absl::StrCat("the job's time ends in ", RemainingText(signal.time_left)),
                    "; at its end workers have ", absl::FormatDuration(settings_.shutdown_timeout), " from SIGTERM on");
  }
  effects->push_back(effect::Print{LogLevel::kWarning, std::move(text)});
  const LocalRanks connected = workers_.CanCheckpoint();
  warned_end_ = now + signal.time_left;
  warned_.clear();
  std::set_difference(workers.begin(), workers.end(), connected.begin(), connected.end(), std::back_inserter(warned_));
  RequestCheckpoint(connected, now, effects);
}

void AgentMachine::RequestCheckpoint(const LocalRanks& workers, SteadyTime now, Effects* effects) {
  if (workers.empty()) return;
  const absl::Duration most = absl::Seconds(1e9);  // maximum that a worker link line can hold
  effects->push_back(effect::SendToWorkers{
      workers, worker_contract::LinkCheckpointNow{std::clamp(warned_end_ - now, absl::ZeroDuration(), most)}});
}

bool AgentMachine::Delivered(const Signal& signal) const {
  return signal.from_batch_system && settings_.batch && settings_.batch->signals_every_process;
}

void AgentMachine::SendLeaveForSignal(SteadyTime now, Effects* effects) {
  SendLeave(absl::StrCat("received ", SignalName(leave_signal_)), settings_.replaced ? 0 : leave_signal_, now, effects);
}

void AgentMachine::SendLeave(const std::string& reason, int signal, SteadyTime now, Effects* effects) {
  if (line_.state() == ServerLine::State::kDown) return;
  const bool has_workers = workers_.AnyAlive();
  line_.OnLeave(has_workers, now);
  effects->push_back(effect::Send{rendezvous::NewLeave(reason, has_workers, signal)});
}

void AgentMachine::OnFatal(const std::string& reason, SteadyTime now, Effects* effects) {
  if (state_ == State::kDone || exit_) return;
  effects->push_back(effect::Print{LogLevel::kError, reason});
  SendLeave(reason, 0, now, effects);
  StopAndExit({1, std::nullopt, {}}, SIGTERM, reason, now, effects);
}

void AgentMachine::StopAndExit(effect::Exit exit, std::optional<int> signal, const std::string& reason, SteadyTime now,
                               Effects* effects) {
  exit_ = std::move(exit);
  line_.OnEnding();
  Stop(signal, reason, now, effects);
}

}  // namespace ddprun::launcher
