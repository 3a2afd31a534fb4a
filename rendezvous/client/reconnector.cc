#include "rendezvous/client/reconnector.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous {
namespace {

// So long after a stream was lost the server's name still stands for the same addresses: the way to who would say
// otherwise may be cut as well.
constexpr absl::Duration kAddressesStand = absl::Seconds(10);

}  // namespace

void Reconnector::Begin(Effects* effects) {
  state_ = State::kResolving;
  effects->push_back(reconnect::Resolve{});
}

void Reconnector::OnResolved(absl::StatusOr<std::vector<std::string>> targets, SteadyTime now, Effects* effects) {
  if (state_ != State::kResolving) return;
  if (targets.ok()) {
    targets_ = *std::move(targets);
    return TryAddresses(now, effects);
  }
  const absl::Status status = absl::UnavailableError(targets.status().message());
  RetryAfter({absl::StrCat("tried ", DescribeEnd(settings_.host, StreamProgress::kNone, status).reason)}, now, effects);
}

void Reconnector::TryAddresses(SteadyTime now, Effects* effects) {
  if (targets_.empty()) return Begin(effects);
  next_target_ = 0;
  tried_.clear();
  refused_.reset();
  no_answer_ = false;
  TryNextAddress(now, effects);
}

void Reconnector::TryNextAddress(SteadyTime now, Effects* effects) {
  ++next_target_;
  state_ = State::kConnecting;
  stream_ = ++streams_;
  join_first_.OnNewStream();
  effects->push_back(reconnect::Connect{stream_, target(), Timeout(now)});
}

absl::Duration Reconnector::Timeout(SteadyTime now) const {
  if (!lost_at_) return backoff_.longest_try();
  return std::min(std::max((now - *lost_at_) / 2, settings_.patience), backoff_.longest_try());
}

void Reconnector::OnOpen(uint64_t stream, Effects* effects) {
  if (stream != stream_ || state_ != State::kConnecting) return;
  state_ = State::kOpen;
  effects->push_back(reconnect::Tell{Connected{}});
}

void Reconnector::OnMessage(uint64_t stream, ServerMessage message, Effects* effects) {
  if (stream != stream_ || state_ != State::kOpen) return;
  backoff_.Reset();
  if (!std::exchange(works_, true)) {
    good_target_ = target();
    // The server has taken the Join, so the end of an older stream means nothing to it any more.
    EndSilentStreams(effects);
  }
  effects->push_back(reconnect::Tell{std::move(message)});
}

void Reconnector::EndSilentStreams(Effects* effects) {
  for (const uint64_t stream : std::exchange(silent_, {})) effects->push_back(reconnect::Abandon{stream});
}

void Reconnector::OnEnd(uint64_t stream, StreamProgress progress, const absl::Status& status, SteadyTime now,
                        Effects* effects) {
  if (stream != stream_) return;
  stream_ = 0;
  NoteLoss(now);
  if (progress == StreamProgress::kTimedOut) no_answer_ = true;
  const bool failed = progress == StreamProgress::kNone || progress == StreamProgress::kTimedOut;
  if (!failed) return RetryAfter(DescribeEnd(settings_.address, progress, status), now, effects);
  absl::StrAppend(&tried_, tried_.empty() ? "tried " : "; ", DescribeEnd(target(), progress, status).reason);
  // Whatever the reason was, in whosever words: does anybody listen there?
  if (progress == StreamProgress::kNone && absl::IsUnavailable(status) && target() == good_target_) {
    state_ = State::kProbing;
    effects->push_back(reconnect::Probe{++probe_, target(), Timeout(now)});
    return;
  }
  AddressFailed(now, effects);
}

void Reconnector::OnProbed(uint64_t probe, std::optional<SteadyTime> refused, SteadyTime now, Effects* effects) {
  if (probe != probe_ || state_ != State::kProbing) return;
  if (refused) refused_ = refused;
  AddressFailed(now, effects);
}

void Reconnector::AddressFailed(SteadyTime now, Effects* effects) {
  if (next_target_ < targets_.size()) return TryNextAddress(now, effects);
  RetryAfter({tried_}, now, effects);
}

void Reconnector::NoteLoss(SteadyTime now) {
  if (std::exchange(works_, false)) lost_at_ = now;
}

void Reconnector::RetryAfter(Disconnected end, SteadyTime now, Effects* effects) {
  const bool permanent = end.permanent;
  end.refused = refused_;
  effects->push_back(reconnect::Tell{std::move(end)});
  if (permanent) {
    state_ = State::kOver;
    return;
  }
  const absl::Duration wait = backoff_.Next(no_answer_);
  if (wait == absl::ZeroDuration()) return TryAddresses(now, effects);
  state_ = State::kPausing;
  retry_.Set(now + wait);
}

void Reconnector::OnDeadline(SteadyTime now, Effects* effects) {
  if (!retry_.Take(now)) return;
  if (std::exchange(was_reset_, false)) {
    NoteLoss(now);
    return RetryAfter(DescribeEnd(settings_.address, StreamProgress::kAbandoned, absl::OkStatus()), now, effects);
  }
  if (lost_at_ && now - *lost_at_ < kAddressesStand) return TryAddresses(now, effects);
  Begin(effects);
}

std::optional<uint64_t> Reconnector::Admit(const LauncherMessage& message) {
  if (state_ != State::kOpen || !join_first_.Admits(message)) return std::nullopt;
  return stream_;
}

void Reconnector::Reset(SteadyTime now) {
  if (state_ != State::kOpen) return;
  silent_.push_back(std::exchange(stream_, 0));
  state_ = State::kPausing;
  was_reset_ = true;
  retry_.Set(now);
}

void Reconnector::Close(bool at_once, Effects* effects) {
  if (const uint64_t stream = std::exchange(stream_, 0); stream != 0) {
    if (at_once) {
      effects->push_back(reconnect::Abandon{stream});
    } else {
      effects->push_back(reconnect::Close{stream});
    }
  }
  EndSilentStreams(effects);
  retry_.Clear();
  state_ = State::kOver;
}

}  // namespace ddprun::rendezvous
