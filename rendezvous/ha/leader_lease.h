#ifndef DDPRUN_RENDEZVOUS_HA_LEADER_LEASE_H_
#define DDPRUN_RENDEZVOUS_HA_LEADER_LEASE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/steady_time.h"
#include "base/timer.h"

namespace ddprun::rendezvous {

// What a LeaderLease tells its shell to ask etcd, one question at a time; or what has become of it.
namespace lease {
// Is there a leader? OnObserved answers.
struct Observe {};
// Grant a lease. OnGranted answers.
struct Grant {};
// Create the leader's key, bound to the lease, if there is none. OnCampaign answers.
struct Campaign {
  int64_t lease;
};
// Keep the lease alive; the answer is of no use after `until`. OnRenewed answers.
struct Renew {
  int64_t lease;
  SteadyTime until;
};
// Give the lease back, and with it the leader's key. No answer; if it fails, the lease expires by itself.
struct Revoke {
  int64_t lease;
};
// From here on this server leads. `epoch`: the revision at which it was elected; greater for each leader.
struct Lead {
  int64_t epoch;
};
// It leads no more, and never again. Comes after a Lead only, once.
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
//       +---------------+--------------+  (somebody else won, no answer, or too late)
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
    absl::Duration ttl;  // as etcd granted it
  };
  enum class Campaigned { kWon, kLost, kNoAnswer };
  enum class Renewed { kKept, kGone, kNoAnswer };

  // `ttl`: what is asked for; etcd may grant more.
  explicit LeaderLease(absl::Duration ttl) : ttl_(ttl) {}

  // The first call.
  void Start(SteadyTime now, Effects* effects);

  // `leader`: whether there is one; unset: no answer.
  void OnObserved(std::optional<bool> leader, SteadyTime now, Effects* effects);
  void OnGranted(std::optional<Granted> granted, SteadyTime now, Effects* effects);
  void OnCampaign(Campaigned result, int64_t epoch, SteadyTime now, Effects* effects);
  void OnRenewed(Renewed result, SteadyTime now, Effects* effects);
  void OnDeadline(SteadyTime now, Effects* effects);
  SteadyTime NextDeadline() const { return timer_.at(); }

  // Gives the leadership up, if it has it or may get it. No StepDown follows.
  void Resign(Effects* effects);
  // A write of this leader was refused because another one leads: as if the lease had expired.
  void OnFenced(SteadyTime now, Effects* effects);

  // Others have seen that the time until which it was valid had passed, and have stopped acting, before a renewal was
  // known to them.
  void OnLapsed(Effects* effects);

  // Whether this server may act as the leader.
  bool leads(SteadyTime now) const { return state_ == State::kLeading && now < valid_until_; }
  // Until when it may, unless a renewal is answered. Infinite past: it does not lead.
  SteadyTime valid_until() const { return state_ == State::kLeading ? valid_until_ : SteadyTime::InfinitePast(); }
  bool over() const { return state_ == State::kOver; }

  // How often a follower looks, and a leader renews.
  absl::Duration observe_interval() const { return ttl_ / 15; }
  absl::Duration renew_interval() const { return ttl_ / 6; }

 private:
  enum class State { kFollowing, kGranting, kCampaigning, kLeading, kOver };

  void FollowAgain(SteadyTime now, Effects* effects);
  void StepDown(std::string reason, Effects* effects);
  bool ExpireIfDue(SteadyTime now, Effects* effects);

  const absl::Duration ttl_;
  State state_ = State::kFollowing;
  int64_t lease_ = 0;         // 0: none
  absl::Duration lease_ttl_;  // of lease_
  SteadyTime sent_;           // when the last question was given to the shell
  SteadyTime valid_until_ = SteadyTime::InfinitePast();
  bool asking_ = false;  // an answer is awaited
  Timer timer_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_HA_LEADER_LEASE_H_
