#include "rendezvous/client/reconnector.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/text.h"

namespace ddprun::rendezvous {
namespace {

// Reuse resolved addresses for this long after losing a stream: the DNS server may be unreachable too.
constexpr absl::Duration kAddressesStand = absl::Seconds(10);

// Maximum pause between rounds while followers answer but no server leads: one is about to.
constexpr absl::Duration kTakeoverPause = absl::Milliseconds(500);

// True if a follower rejected this launcher's credentials.
bool IsFollowersRefusal(const StreamEnd& end) {
  return end.progress == StreamProgress::kFollower &&
         (absl::IsUnauthenticated(end.status) || absl::IsPermissionDenied(end.status));
}

constexpr absl::string_view kUnresolved = "DNS resolution failed for ";

// Extracts the cause: "connection refused".
std::string Cause(absl::string_view text) {
  if (absl::StrContains(text, kUnresolved)) {
    // "...: C-ares status is not ARES_SUCCESS qtype=A name=host is_balancer=0: Domain name not found".
    const size_t at = text.rfind(": ");
    return absl::StrCat("can't resolve the host name",
                        at == absl::string_view::npos ? "" : absl::AsciiStrToLower(text.substr(at)));
  }
  std::string cause = absl::StrReplaceAll(GrpcCause(text), {{"\n", " "}, {"\r", " "}});
  if (cause.empty()) return "connection lost";
  // Lower-case "Connection refused", but not "IPv6 ..." or a host's name.
  if (cause.size() > 1 && absl::ascii_islower(cause[1])) cause[0] = absl::ascii_tolower(cause[0]);
  return cause;
}

// True if gRPC reached a peer that is not a gRPC server.
bool SpeaksAnotherProtocol(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kUnavailable) return true;
  const std::string text = absl::AsciiStrToLower(status.message());
  for (const absl::string_view sign : {"http1.x", "http/2", "http status", "settings", "frame"}) {
    if (absl::StrContains(text, sign)) return true;
  }
  return false;
}

}  // namespace

void Reconnector::Begin(Effects* effects) {
  state_ = State::kResolving;
  leader_is_new_ = false;
  effects->emplace_back(reconnect::Resolve{leader_});
}

void Reconnector::OnResolved(absl::StatusOr<std::vector<ServerAddress>> targets, SteadyTime now, Effects* effects) {
  if (state_ != State::kResolving) return;
  if (targets.ok()) {
    targets_ = *std::move(targets);
    return TryAddresses(now, effects);
  }
  refused_.reset();
  const absl::Status status = absl::UnavailableError(targets.status().message());
  RetryAfter({absl::StrCat("tried ", DescribeEnd(settings_.host, StreamProgress::kNone, status).reason)}, now, effects);
}

void Reconnector::TryAddresses(SteadyTime now, Effects* effects) {
  if (targets_.empty()) return Begin(effects);
  state_ = State::kConnecting;
  tried_.clear();
  no_answer_ = false;
  follower_answered_ = false;
  refusal_.reset();
  only_refusals_ = true;
  for (const ServerAddress& target : targets_) {
    const auto is_to_target = [&](const auto& pending) { return pending.second.target == target.address; };
    if (std::any_of(tries_.begin(), tries_.end(), is_to_target)) continue;  // still pending from an earlier round
    tries_[++streams_] = Try{target.address, now, gone_};
    effects->emplace_back(reconnect::Connect{streams_, target.address, target.host, Timeout(now)});
  }
}

absl::Duration Reconnector::Timeout(SteadyTime now) const {
  if (!lost_at_) return backoff_.longest_try();
  return std::min(std::max((now - *lost_at_) / 2, settings_.patience), backoff_.longest_try());
}

void Reconnector::OnOpen(uint64_t stream, int64_t epoch, Effects* effects) {
  const auto found = tries_.find(stream);
  if (found == tries_.end()) return;
  stream_ = stream;
  open_target_ = found->second.target;
  open_epoch_ = epoch;
  tries_.erase(found);
  AbandonTries(effects);
  retry_.Clear();
  refused_.reset();
  leader_is_new_ = false;
  state_ = State::kOpen;
  join_first_.OnNewStream();
  effects->emplace_back(reconnect::Report{Connected{epoch == 0 ? "" : open_target_}});
}

void Reconnector::AbandonTries(Effects* effects) {
  for (const auto& [stream, tried] : tries_) effects->emplace_back(reconnect::Abandon{stream});
  tries_.clear();
  probing_ = false;
}

void Reconnector::OnMessage(uint64_t stream, ServerMessage message, Effects* effects) {
  if (stream != stream_ || state_ != State::kOpen) return;
  backoff_.Reset();
  if (!std::exchange(works_, true)) {
    good_target_ = open_target_;
    epoch_ = open_epoch_;
    gone_ = false;
    // The server has received the Join, so it ignores the end of an older stream.
    EndSilentStreams(effects);
  }
  effects->emplace_back(reconnect::Report{std::move(message)});
}

void Reconnector::EndSilentStreams(Effects* effects) {
  for (const uint64_t stream : std::exchange(silent_, {})) effects->emplace_back(reconnect::Abandon{stream});
}

void Reconnector::OnEnd(uint64_t stream, const StreamEnd& end, SteadyTime now, Effects* effects) {
  if (const auto found = tries_.find(stream); found != tries_.end()) {
    const Try tried = found->second;
    tries_.erase(found);
    return TryEnded(tried, end, now, effects);
  }
  if (stream != stream_ || stream_ == 0) return;
  stream_ = 0;
  NoteLoss(now);
  refused_.reset();
  // With several servers, name the one that was lost.
  const std::string& server = open_epoch_ == 0 ? settings_.address : open_target_;
  RetryAfter(DescribeEnd(server, end.progress, end.status), now, effects);
}

void Reconnector::TryEnded(const Try& tried, const StreamEnd& end, SteadyTime now, Effects* effects) {
  if (end.progress == StreamProgress::kOpen || end.progress == StreamProgress::kAbandoned) {
    AbandonTries(effects);  // a server was reached; its answer counts
    return RetryAfter(DescribeEnd(tried.target, end.progress, end.status), now, effects);
  }
  if (end.progress == StreamProgress::kTimedOut) no_answer_ = true;
  if (IsFollowersRefusal(end)) {
    refusal_ = DescribeEnd(tried.target, StreamProgress::kOpen, end.status);
  } else {
    only_refusals_ = false;
    if (end.progress == StreamProgress::kFollower) OnFollowerAnswer(tried, end.follower, now);
  }
  absl::StrAppend(&tried_, tried_.empty() ? "tried " : "; ",
                  DescribeEnd(tried.target, end.progress, end.status).reason);
  // Whatever error gRPC reported, check whether anything listens there.
  if (end.progress == StreamProgress::kNone && absl::IsUnavailable(end.status) && tried.target == good_target_ &&
      !probe_under_way_) {
    probing_ = probe_under_way_ = true;
    effects->emplace_back(reconnect::Probe{++probe_, tried.target, Timeout(now)});
  }
  EndRoundIfOver(now, effects);
}

void Reconnector::OnFollowerAnswer(const Try& tried, const FollowerAnswer& answer, SteadyTime now) {
  follower_answered_ = true;
  // The last leader's host may never answer; do not wait for it.
  if (state_ == State::kConnecting && !retry_.running()) retry_.Set(now + settings_.patience);
  if (!answer.leader.empty() && answer.leader != leader_) {
    leader_ = answer.leader;
    leader_is_new_ = true;
  }
  if (answer.epoch == 0 || answer.epoch != epoch_) return;
  // If this became known only after the attempt began, it proves nothing about the time before.
  if (tried.gone_known) refused_ = std::max(refused_.value_or(tried.began), tried.began);
  if (answer.leader.empty()) gone_ = true;  // its lease has expired, and it stopped before that
}

void Reconnector::OnProbed(uint64_t probe, std::optional<SteadyTime> refused, SteadyTime now, Effects* effects) {
  if (probe != probe_) return;
  probe_under_way_ = false;
  if (!std::exchange(probing_, false)) return;
  if (refused) gone_ = true;
  if (refused && epoch_ == 0 && !settings_.several) refused_ = refused;
  EndRoundIfOver(now, effects);
}

void Reconnector::EndRoundIfOver(SteadyTime now, Effects* effects) {
  if (state_ != State::kConnecting || !tries_.empty() || probing_) return;
  // One follower may have outdated credentials, but if all refuse, the leader would too.
  RetryAfter(refusal_ && only_refusals_ ? *refusal_ : Disconnected{tried_}, now, effects);
}

void Reconnector::EndRound(SteadyTime now, Effects* effects) {
  for (const auto& [stream, tried] : tries_) {
    absl::StrAppend(&tried_, "; ", DescribeEnd(tried.target, StreamProgress::kTimedOut, absl::OkStatus()).reason);
  }
  RetryAfter({tried_}, now, effects);
}

void Reconnector::NoteLoss(SteadyTime now) {
  if (std::exchange(works_, false)) lost_at_ = now;
}

void Reconnector::RetryAfter(Disconnected end, SteadyTime now, Effects* effects) {
  const bool permanent = end.permanent;
  retry_.Clear();
  end.refused = std::exchange(refused_, std::nullopt);
  effects->emplace_back(reconnect::Report{std::move(end)});
  if (permanent) {
    state_ = State::kOver;
    return;
  }
  if (leader_is_new_) {
    backoff_.Reset();
    return Begin(effects);
  }
  absl::Duration wait = backoff_.Next(no_answer_ && !follower_answered_);
  if (follower_answered_) wait = std::min(wait, kTakeoverPause);
  if (wait == absl::ZeroDuration()) return TryAddresses(now, effects);
  state_ = State::kPausing;
  retry_.Set(now + wait);
}

void Reconnector::OnDeadline(SteadyTime now, Effects* effects) {
  if (!retry_.Take(now)) return;
  if (state_ == State::kConnecting) return EndRound(now, effects);
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
      effects->emplace_back(reconnect::Abandon{stream});
    } else {
      effects->emplace_back(reconnect::Close{stream});
    }
  }
  for (const auto& [stream, tried] : std::exchange(tries_, {})) effects->emplace_back(reconnect::Abandon{stream});
  EndSilentStreams(effects);
  retry_.Clear();
  state_ = State::kOver;
}

bool IsRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) || absl::IsAborted(status) ||
         absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status);
}

bool IsTlsFailure(StreamProgress progress, const absl::Status& status) {
  return progress == StreamProgress::kNone && absl::IsUnavailable(status) &&
         !absl::StrContains(status.message(), "Failed to connect to remote host") &&
         !absl::StrContains(status.message(), kUnresolved);
}

std::string DescribeTlsFailure(const absl::Status& status) {
  return absl::StrCat("TLS handshake failed: ", Cause(status.message()),
                      "; check --tls-ca, --tls-cert and certificate expiry on both sides");
}

Disconnected DescribeEnd(absl::string_view address, StreamProgress progress, const absl::Status& status) {
  switch (progress) {
    case StreamProgress::kNone:
      if (SpeaksAnotherProtocol(status)) {
        return {absl::StrCat(address, ": not a ddprun rendezvous server")};
      }
      return {absl::StrCat(address, ": ", Cause(status.message()))};
    case StreamProgress::kTimedOut: return {absl::StrCat(address, ": no answer")};
    case StreamProgress::kFollower: return {absl::StrCat(address, ": ", status.message())};
    case StreamProgress::kAbandoned: return {absl::StrCat(address, ": not responding")};
    case StreamProgress::kOpen: break;
  }
  if (IsRefusal(status)) {
    return {absl::StrCat("rendezvous server at ", address, " refused: ", Cause(status.message())), true};
  }
  if (status.ok()) return {absl::StrCat(address, ": connection closed by the server")};
  return {absl::StrCat(address, ": ", Cause(status.message()))};
}

}  // namespace ddprun::rendezvous
