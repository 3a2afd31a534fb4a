// How a node stops: signals, the end of its workers, and what follows it.
#include <signal.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/signal_name.h"
#include "launcher/machine/agent_machine.h"
#include "launcher/report/duration_text.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {
namespace {

// A batch system's signal reaches all processes of a job, on all nodes, within this time.
constexpr absl::Duration kSignalSpread = absl::Milliseconds(250);
// A worker that is alive this long after SIGKILL hangs in the kernel: continue without it.
constexpr absl::Duration kAbandonAfter = absl::Seconds(30);

}  // namespace

bool AgentMachine::Delivered(const Signal& signal) const {
  return signal.from_batch_system && settings_.batch && settings_.batch->signals_every_process;
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
  TellCheckpoint(connected, now, effects);
}

void AgentMachine::TellCheckpoint(const LocalRanks& workers, SteadyTime now, Effects* effects) {
  if (workers.empty()) return;
  const absl::Duration most = absl::Seconds(1e9);  // maximum that a worker link line can hold
  effects->push_back(effect::SendToWorkers{
      workers, worker_contract::LinkCheckpointNow{std::clamp(warned_end_ - now, absl::ZeroDuration(), most)}});
}

void AgentMachine::OnSignal(const Signal& signal, SteadyTime now, Effects* effects) {
  if (state_ == State::kDone) return;
  const auto& warnings = settings_.warning_signals;
  if (std::find(warnings.begin(), warnings.end(), signal.number) != warnings.end())
    return OnWarning(signal, now, effects);
  if (exit_) {
    // Asked a second time, or while stopping for another reason: no more patience. But a batch system that stops the
    // job because it ends is not asking, and sends its own SIGKILL.
    if (state_ == State::kStopping && !signal.from_batch_system) {
      if (kill_.running()) kill_.Set(now);
      if (abandon_.running()) abandon_.Set(now);
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
    SayLeaveBecauseOfSignal(now, effects);
  }
  StopAndExit({worker_contract::ExitCodeOfSignal(signal.number), std::nullopt, {}},
              Delivered(signal) ? std::nullopt : std::optional<int>(signal.number),
              absl::StrCat("received ", signal.text), now, effects);
}

void AgentMachine::SayLeaveBecauseOfSignal(SteadyTime now, Effects* effects) {
  SayLeave(absl::StrCat("received ", SignalName(leave_signal_)), settings_.replaced ? 0 : leave_signal_, now, effects);
}

void AgentMachine::SayLeave(const std::string& reason, int signal, SteadyTime now, Effects* effects) {
  if (line_.state() == ServerLine::State::kDown) return;
  const bool has_workers = workers_.AnyAlive();
  line_.OnLeave(has_workers, now);
  effects->push_back(effect::Send{rendezvous::NewLeave(reason, has_workers, signal)});
}

void AgentMachine::OnFatal(const std::string& reason, SteadyTime now, Effects* effects) {
  if (state_ == State::kDone || exit_) return;
  effects->push_back(effect::Print{LogLevel::kError, reason});
  SayLeave(reason, 0, now, effects);
  StopAndExit({1, std::nullopt, {}}, SIGTERM, reason, now, effects);
}

void AgentMachine::StopAndExit(effect::Exit exit, std::optional<int> signal, const std::string& reason, SteadyTime now,
                               Effects* effects) {
  exit_ = std::move(exit);
  line_.OnEnding();
  Stop(signal, reason, now, effects);
}

void AgentMachine::Stop(std::optional<int> signal, const std::string& reason, SteadyTime now, Effects* effects) {
  StopThese(workers_.Alive(), signal, reason, now, effects);
}

void AgentMachine::StopThese(LocalRanks workers, std::optional<int> signal, const std::string& reason, SteadyTime now,
                             Effects* effects) {
  reports_.Clear();
  failures_.Forget();
  broken_.reset();
  broken_due_.Clear();
  // Those that have been told already are on the way; exit_ may have been set meanwhile.
  workers.erase(std::remove_if(workers.begin(), workers.end(),
                               [&](int32_t rank) { return workers_.state(rank) == WorkerSet::State::kStopping; }),
                workers.end());
  workers_.Stop(workers);
  if (Stopped()) return OnStopped(now, effects);
  state_ = State::kStopping;
  if (workers.empty()) return;
  StartGrace(now);
  // A lease that has not run out is renewed while they stop.
  const bool cut_off = line_.lease().StopAt() <= now;
  const SteadyTime killed_at = cut_off ? KillAt() : kill_.at();
  if (now < killed_at) effects->push_back(effect::NotifyStop{workers, killed_at, reason});
  if (settings_.shutdown_timeout > absl::ZeroDuration() && signal) {
    effects->push_back(effect::SignalWorkers{*signal, workers});
    effects->push_back(effect::SignalWorkers{SIGCONT, workers});
  }
  if (KillAt() <= now) KillOrAbandon(now, effects);
}

void AgentMachine::StartGrace(SteadyTime now) {
  kill_.Set(now + settings_.shutdown_timeout);
  abandon_.Clear();
}

void AgentMachine::KillOrAbandon(SteadyTime now, Effects* effects) {
  LocalRanks workers = workers_.In(WorkerSet::State::kSuspending);
  if (!workers.empty()) {
    effects->push_back(
        effect::Print{LogLevel::kWarning, absl::StrCat(RanksText(workers), " did not suspend in time: killed")});
    workers_.Stop(workers);
  }
  workers = workers_.In(WorkerSet::State::kStopping);
  if (KillAt() <= now) {
    kill_.Clear();
    abandon_.Set(now + kAbandonAfter);
    effects->push_back(effect::KillWorkers{workers});
    return;
  }
  abandon_.Clear();
  effects->push_back(effect::Print{
      LogLevel::kError, absl::StrCat(workers.size() == 1 ? "1 worker is" : absl::StrCat(workers.size(), " workers are"),
                                     " still alive after SIGKILL (uninterruptible?); going on without")});
  workers_.Abandon(workers);
  OnFewerWorkers(now, effects);
}

void AgentMachine::KillSurvivors(const LocalRanks& ranks, SteadyTime now, Effects* effects) {
  workers_.Stop(ranks);
  effects->push_back(effect::KillWorkers{ranks});
  if (!kill_.running()) abandon_.Set(now + kAbandonAfter);
}

void AgentMachine::StopBecauseCutOff(SteadyTime now, Effects* effects) {
  const absl::Duration since = absl::Trunc(now - line_.lease().since(), absl::Milliseconds(100));
  effects->push_back(effect::Print{
      LogLevel::kWarning,
      absl::StrCat("cut off from the rendezvous server at ", settings_.server, " for ", absl::FormatDuration(since),
                   ": stopping this node's workers, as the other nodes may go on without them")});
  LeaveRound(true, {current_->round(), false, "cut off from the rendezvous server", std::nullopt}, now, effects);
}

SteadyTime AgentMachine::WorkersMayRunUntil() const {
  // After a verdict no round of this job follows.
  const bool bounded = !workers_.Quiet() && !(exit_ && exit_->verdict);
  return bounded ? line_.lease().KillAt() : SteadyTime::InfiniteFuture();
}

bool AgentMachine::MayStartWorkers(SteadyTime now) const {
  return state_ == State::kRunning && now < line_.lease().StopAt();
}

SteadyTime AgentMachine::CutOffAt() const {
  return state_ == State::kRunning ? line_.lease().StopAt() : SteadyTime::InfiniteFuture();
}

SteadyTime AgentMachine::KillAt() const {
  return kill_.running() ? std::min(kill_.at(), WorkersMayRunUntil()) : SteadyTime::InfiniteFuture();
}

void AgentMachine::OnStopped(SteadyTime, Effects* effects) {
  kill_.Clear();
  abandon_.Clear();
  line_.SetHasWorkers(false);
  const bool was_waiting_to_open = state_ == State::kStopping && !store_;
  state_ = State::kStopping;
  if (leave_.running()) return;
  if (exit_) {
    effects->push_back(effect::SweepOrphans{});
    state_ = State::kDone;
    effects->push_back(effect::ShowStatus{""});
    effects->push_back(*exit_);
    return;
  }
  if (was_waiting_to_open) return;
  effects->push_back(effect::SweepOrphans{});
  store_.reset();
  effects->push_back(effect::OpenStore{});
}

}  // namespace ddprun::launcher
