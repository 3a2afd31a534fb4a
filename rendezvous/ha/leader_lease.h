#ifndef DDPRUN_RENDEZVOUS_HA_LEADER_LEASE_H_
#define DDPRUN_RENDEZVOUS_HA_LEADER_LEASE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/steady_time.h"

namespace ddprun::rendezvous {

// Effects that the shell of a LeaderLease carries out: requests to etcd, one at a time, or changes of leadership.
namespace lease {
// Check whether there is a leader. If there was one the last time, wait until that may have changed. Answered by
// OnObserved.
struct Observe {};
// Grant a lease. Answered by OnGranted.
struct Grant {};
// Create the leader's key, bound to the lease, if there is none. Answered by OnCampaign.
struct Campaign {
  int64_t lease;
};
// Keep the lease alive; an answer after `until` is useless. Answered by OnRenewed.
struct Renew {
  int64_t lease;
  SteadyTime until;
};
// Revoke the lease, and with it the leader's key. Not answered; if it fails, the lease expires.
struct Revoke {
  int64_t lease;
};
// This server leads from now on. `epoch`: the revision at which it was elected; increases with each leader.
struct Lead {
  int64_t epoch;
};
// This server has stopped leading, permanently. Follows a Lead, once.
struct StepDown {
  std::string reason;
};
}  // namespace lease

using LeaseEffect = std::variant<lease::Observe, lease::Grant, lease::Campaign, lease::Renew, lease::Revoke,
                                 lease::Lead, lease::StepDown>;

// PURE: whether one of several servers is the leader, by a lease in etcd.
//
//   kFollowing <--> kGranting --> kCampaigning --> kLeading --> kOver
//       ^               |              |              (no renewal in time, the lease is gone, or Resign)
//       +---------------+--------------+  (another server won, no answer, or too late)
//
// etcd gives the leadership to another server when the lease was not renewed for its time to live. By its own clock
// this server stops two thirds of that after it sent the last renewal that was answered: so there never are two servers
// for which leads() is true, as long as their clocks run at the same rate to within a third, whatever is paused or
// lost. How long a server leads is decided by the clock, not by an event: leads() is false in time even if nothing is
// called.
//
// Thread-compatible. Every method may be called in every state; effects are appended. `now` never goes back.
class LeaderLease {
 public:
  using Effects = std::vector<LeaseEffect>;

  struct Granted {
    int64_t lease;
    absl::Duration ttl;  // time to live that etcd granted
  };
  enum class Campaigned { kWon, kLost, kNoAnswer };
  enum class Renewed { kKept, kGone, kNoAnswer };

  // `ttl`: the requested time to live; etcd may grant more.
  explicit LeaderLease(absl::Duration ttl) : ttl_(ttl) {}

  // Begins to follow. Call first, once.
  void Start(SteadyTime now, Effects* effects);

  // Answers to the effects, and the deadline. `leader`: true if there is one; unset: no answer.
  void OnObserved(std::optional<bool> leader, SteadyTime now, Effects* effects);
  void OnGranted(std::optional<Granted> granted, SteadyTime now, Effects* effects);
  void OnCampaign(Campaigned result, int64_t epoch, SteadyTime now, Effects* effects);
  void OnRenewed(Renewed result, SteadyTime now, Effects* effects);
  void OnDeadline(SteadyTime now, Effects* effects);
  SteadyTime NextDeadline() const { return timer_.at(); }

  // Gives up the leadership or the candidacy. No StepDown follows.
  void Resign(Effects* effects);
  // A write of this leader was refused because another server leads. Same effect as an expired lease.
  void OnFenced(SteadyTime now, Effects* effects);

  // Steps down, because the shell published a renewal only after valid_until(): other threads may have seen that time
  // pass and stopped acting.
  void OnLapsed(Effects* effects);

  // True if this server may act as the leader.
  bool leads(SteadyTime now) const { return state_ == State::kLeading && now < valid_until_; }
  // Returns when leads() becomes false unless a renewal is answered. Infinite past: this server does not lead.
  SteadyTime valid_until() const { return state_ == State::kLeading ? valid_until_ : SteadyTime::InfinitePast(); }
  bool over() const { return state_ == State::kOver; }

  // Pause of a follower between two Observe, and interval at which a leader renews.
  absl::Duration observe_interval() const { return ttl_ / 15; }
  absl::Duration renew_interval() const { return ttl_ / 6; }

 private:
  enum class State { kFollowing, kGranting, kCampaigning, kLeading, kOver };

  void FollowAgain(SteadyTime now, Effects* effects);
  void StepDown(std::string reason, Effects* effects);
  bool ExpireIfDue(SteadyTime now, Effects* effects);

  const absl::Duration ttl_;
  State state_ = State::kFollowing;
  int64_t lease_ = 0;         // etcd's id of the lease; 0: none
  absl::Duration lease_ttl_;  // time to live of lease_
  SteadyTime sent_;           // when the last request was given to the shell
  SteadyTime valid_until_ = SteadyTime::InfinitePast();
  bool asking_ = false;  // waiting for an answer
  Timer timer_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_HA_LEADER_LEASE_H_
