#include "launcher/machine/server_line.h"

#include <algorithm>

#include "rendezvous/core/heartbeats.h"

namespace ddprun::launcher {

void Lease::Answered(SteadyTime now) {
  if (asked_.empty()) return;
  in_touch_ = InTouch(now);
  since_ = std::max(since_, asked_.front());
  asked_.pop_front();
}

void Lease::StreamOver(bool silent) {
  asked_.clear();
  refusals_count_ = !silent;
}

void Lease::Refused(SteadyTime began, SteadyTime now) {
  if (!refusals_count_) return;
  in_touch_ = InTouch(now);
  since_ = std::max(since_, began);
}

ServerLine::ServerLine(const Settings& settings, SteadyTime now)
    : settings_(settings), lease_(settings.heartbeat_timeout) {
  give_up_.Set(now + settings.join_timeout);
}

uint64_t ServerLine::OnConnected(SteadyTime now) {
  state_ = State::kJoining;
  // A server that takes the connection but never answers the Join is as silent as one that misses heartbeats.
  Heard(now);
  lease_.Asked(now);
  return ++incarnation_;
}

bool ServerLine::OnDisconnected(const std::string& reason, std::optional<SteadyTime> refused, SteadyTime now) {
  if (state_ != State::kDown) {
    was_silent_ = false;
    lease_.StreamOver(false);
  }
  if (refused) lease_.Refused(*refused, now);
  return Down(reason, now);
}

bool ServerLine::OnReset(const std::string& reason, SteadyTime now) {
  was_silent_ = true;
  lease_.StreamOver(true);
  return Down(reason, now);
}

bool ServerLine::Down(const std::string& reason, SteadyTime now) {
  const bool was_up = up();
  state_ = State::kDown;
  last_error_ = reason;
  leaving_ = false;
  heartbeat_.Clear();
  silent_.Clear();
  if (was_up && !ending_) give_up_.Set(now + reconnect_timeout_);
  return was_up;
}

ServerLine::Reading ServerLine::OnMessage(bool is_ack, SteadyTime now) {
  if (state_ == State::kDown) return Reading::kStale;
  // Whatever comes first on a stream answers its Join.
  if (is_ack || state_ == State::kJoining) lease_.Answered(now);
  const bool too_late = lease_.StopAt() <= now;
  const bool beats = heartbeat_interval_ != absl::InfiniteDuration() || state_ == State::kJoining;
  if (beats && (!ending_ || leaving_) && !(too_late && has_workers_)) Heard(now);
  return too_late ? Reading::kTooLate : Reading::kCounts;
}

void ServerLine::Heard(SteadyTime now) {
  heard_ = now;
  silent_.Set(has_workers_ ? lease_.SilentAt(now) : now + rendezvous::IdleTimeout(lease_.timeout()) / 2);
}

void ServerLine::SetHasWorkers(bool has_workers) {
  if (has_workers == has_workers_) return;
  has_workers_ = has_workers;
  if (silent_.running()) Heard(heard_);
}

void ServerLine::OnWelcome(const rendezvous::Welcome& welcome, SteadyTime now) {
  lease_.SetTimeout(ToDuration(welcome.heartbeat_timeout()));
  reconnect_timeout_ =
      settings_.reconnect_timeout.value_or(welcome.by_launcher() ? kHostedServerReturns : kServerReturns);
  state_ = State::kUp;
  ever_up_ = true;
  give_up_.Clear();
  heartbeat_interval_ = ToDuration(welcome.heartbeat_interval());
  heartbeat_.Set(now + heartbeat_interval_);
  if (heartbeat_interval_ == absl::InfiniteDuration()) {
    silent_.Clear();
    lease_.Unlimited();
  }
}

void ServerLine::OnLeave(bool has_workers, SteadyTime now) {
  leaving_ = has_workers;
  if (!leaving_ || !up() || heartbeat_interval_ == absl::InfiniteDuration()) return;
  heartbeat_.Set(now + heartbeat_interval_);
  Heard(now);
}

void ServerLine::OnEnding() {
  ending_ = true;
  give_up_.Clear();
  if (leaving_) return;
  heartbeat_.Clear();
  silent_.Clear();
}

bool ServerLine::TakeHeartbeat(SteadyTime now) {
  if (!heartbeat_.IsDue(now)) return false;
  heartbeat_.Set(now + heartbeat_interval_);
  lease_.Asked(now);
  return true;
}

SteadyTime ServerLine::NextDeadline() const { return std::min({heartbeat_.at(), silent_.at(), give_up_.at()}); }

}  // namespace ddprun::launcher
