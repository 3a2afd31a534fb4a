#include "rendezvous/ha/leader_lease.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous {

void LeaderLease::Start(SteadyTime now, Effects* effects) {
  timer_.Set(now);
  OnDeadline(now, effects);
}

void LeaderLease::OnObserved(std::optional<bool> leader, SteadyTime now, Effects* effects) {
  if (state_ != State::kFollowing || !std::exchange(asking_, false)) return;
  if (leader.value_or(true)) {
    timer_.Set(now + observe_interval());
    return;
  }
  state_ = State::kGranting;
  sent_ = now;
  asking_ = true;
  effects->emplace_back(lease::Grant{});
}

void LeaderLease::OnGranted(std::optional<Granted> granted, SteadyTime now, Effects* effects) {
  if (state_ != State::kGranting) return;
  if (!granted) return FollowAgain(now, effects);
  lease_ = granted->lease;
  lease_ttl_ = granted->ttl;
  // Counted from the request for the grant, because etcd can't have started earlier.
  valid_until_ = sent_ + 2 * lease_ttl_ / 3;
  state_ = State::kCampaigning;
  effects->emplace_back(lease::Campaign{lease_});
}

void LeaderLease::OnCampaign(Campaigned result, int64_t epoch, SteadyTime now, Effects* effects) {
  if (state_ != State::kCampaigning) return;
  // Without an answer the key may exist. It is deleted with its lease.
  if (result != Campaigned::kWon || now >= valid_until_) return FollowAgain(now, effects);
  state_ = State::kLeading;
  asking_ = false;
  timer_.Set(std::min(sent_ + renew_interval(), valid_until_));
  effects->emplace_back(lease::Lead{epoch});
}

void LeaderLease::OnRenewed(Renewed result, SteadyTime now, Effects* effects) {
  if (state_ != State::kLeading || !asking_) return;
  asking_ = false;
  if (ExpireIfDue(now, effects)) return;
  switch (result) {
    case Renewed::kKept:
      valid_until_ = std::max(valid_until_, sent_ + 2 * lease_ttl_ / 3);
      timer_.Set(std::min(std::max(sent_ + renew_interval(), now), valid_until_));
      return;
    case Renewed::kGone: return StepDown("the lease is gone from etcd", effects);
    case Renewed::kNoAnswer: timer_.Set(std::min(now + renew_interval() / 4, valid_until_)); return;
  }
}

void LeaderLease::OnDeadline(SteadyTime now, Effects* effects) {
  if (!timer_.Take(now)) return;
  if (state_ == State::kLeading) {
    if (ExpireIfDue(now, effects)) return;
    sent_ = now;
    asking_ = true;
    timer_.Set(valid_until_);
    effects->emplace_back(lease::Renew{lease_, valid_until_});
  } else if (state_ == State::kFollowing) {
    asking_ = true;
    effects->emplace_back(lease::Observe{});
  }
}

bool LeaderLease::ExpireIfDue(SteadyTime now, Effects* effects) {
  if (now < valid_until_) return false;
  StepDown(absl::StrCat("no lease renewal was answered for ",
                        absl::FormatDuration(absl::Trunc(2 * lease_ttl_ / 3, absl::Milliseconds(1)))),
           effects);
  return true;
}

void LeaderLease::Resign(Effects* effects) {
  if (lease_ != 0) effects->emplace_back(lease::Revoke{std::exchange(lease_, 0)});
  state_ = State::kOver;
  timer_.Clear();
}

void LeaderLease::OnFenced(SteadyTime, Effects* effects) {
  if (state_ == State::kLeading) StepDown("another server leads", effects);
}

void LeaderLease::OnLapsed(Effects* effects) {
  if (state_ == State::kLeading) StepDown("the lease expired before its renewal was confirmed", effects);
}

void LeaderLease::FollowAgain(SteadyTime now, Effects* effects) {
  if (lease_ != 0) effects->emplace_back(lease::Revoke{std::exchange(lease_, 0)});
  state_ = State::kFollowing;
  asking_ = false;
  timer_.Set(now + observe_interval());
}

void LeaderLease::StepDown(std::string reason, Effects* effects) {
  state_ = State::kOver;
  asking_ = false;
  timer_.Clear();
  effects->emplace_back(lease::StepDown{std::move(reason)});
}

}  // namespace ddprun::rendezvous
