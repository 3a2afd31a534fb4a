#include "launcher/core/server_line.h"

#include <algorithm>

namespace ddprun::launcher {

ServerLine::ServerLine(const Settings& settings, SteadyTime now)
    : settings_(settings), lease_(settings.heartbeat_timeout) {
  give_up_.Set(now + settings.join_timeout);
}

uint64_t ServerLine::OnConnected(SteadyTime now) {
  state_ = State::kJoining;
  // A server that takes the connection but never answers the Join is as silent as one that misses heartbeats.
  silent_.Set(lease_.SilentAt(now));
  lease_.Asked(now);
  return ++incarnation_;
}

bool ServerLine::OnDisconnected(const std::string& reason, std::optional<SteadyTime> refused, SteadyTime now) {
  if (state_ != State::kDown) lease_.StreamOver(false);
  if (refused) lease_.Refused(*refused);
  return Down(reason, now);
}

bool ServerLine::OnReset(const std::string& reason, SteadyTime now) {
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
  if (was_up && !ending_) give_up_.Set(now + settings_.reconnect_timeout);
  return was_up;
}

ServerLine::Reading ServerLine::OnMessage(bool is_ack, SteadyTime now) {
  if (state_ == State::kDown) return Reading::kStale;
  // Whatever comes first on a stream answers its Join.
  if (is_ack || state_ == State::kJoining) lease_.Answered();
  if (lease_.StopAt() <= now) return Reading::kTooLate;
  const bool beats = heartbeat_interval_ != absl::InfiniteDuration() || state_ == State::kJoining;
  if (beats && (!ending_ || leaving_)) silent_.Set(lease_.SilentAt(now));
  return Reading::kCounts;
}

void ServerLine::OnWelcome(absl::Duration heartbeat_interval, SteadyTime now) {
  state_ = State::kUp;
  ever_up_ = true;
  give_up_.Clear();
  heartbeat_interval_ = heartbeat_interval;
  heartbeat_.Set(now + heartbeat_interval);
  if (heartbeat_interval == absl::InfiniteDuration()) {
    silent_.Clear();
    lease_.Unlimited();
  }
}

void ServerLine::OnLeave(bool has_workers, SteadyTime now) {
  leaving_ = has_workers;
  if (!leaving_ || !up() || heartbeat_interval_ == absl::InfiniteDuration()) return;
  heartbeat_.Set(now + heartbeat_interval_);
  silent_.Set(lease_.SilentAt(now));
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
