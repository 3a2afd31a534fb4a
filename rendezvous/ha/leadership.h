#ifndef DDPRUN_RENDEZVOUS_HA_LEADERSHIP_H_
#define DDPRUN_RENDEZVOUS_HA_LEADERSHIP_H_

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "rendezvous/ha/etcd_client.h"
#include "rendezvous/ha/etcd_keys.h"
#include "rendezvous/ha/leader_lease.h"

namespace ddprun::rendezvous {

// Who leads, as etcd said at one moment.
struct LeaderView {
  std::string address;  // HOST:PORT; empty: nobody
  int64_t epoch = 0;    // of the latest leader, whether it still leads or not; 0: there was none
};

// Asks etcd now: what it answers was true at a moment after the call began.
absl::StatusOr<LeaderView> AskForLeader(EtcdClient* client, const EtcdKeys& keys, SteadyTime deadline);

// Carries out what a LeaderLease decides: a thread of its own asks etcd. Thread-safe. Outlived by the client.
class Leadership {
 public:
  struct Settings {
    std::string advertise;  // HOST:PORT, at which launchers reach this server
    absl::Duration ttl;
  };
  struct Events {
    std::function<void(int64_t epoch)> on_lead;                   // this server leads; at most once
    std::function<void(const std::string& reason)> on_step_down;  // it leads no more, and never again; after on_lead
  };

  // Events come from the thread, begin at once, and end before Stop returns.
  Leadership(EtcdClient* client, EtcdKeys keys, Settings settings, Events events);
  ~Leadership();  // as Stop

  // Whether this server may act as the leader at this moment. Once false after on_lead, it stays false.
  bool MayAct() const { return SteadyNow().since_start() < absl::Nanoseconds(valid_until_ns_.load()); }

  // While this server follows: HOST:PORT of the leader as etcd last said, a moment ago; empty: none, or etcd does not
  // answer.
  std::string leader() const ABSL_LOCKS_EXCLUDED(mutex_);

  // A write was refused because another server leads.
  void OnFenced();

  // Gives the leadership back, so that another server need not wait for it to expire, and ends the thread. Later calls
  // do nothing. Not to be called from an event.
  void Stop();

 private:
  void Run();
  void CarryOut(LeaderLease::Effects effects);
  void Do(const lease::Observe&, LeaderLease::Effects* more);
  void Do(const lease::Grant&, LeaderLease::Effects* more);
  void Do(const lease::Campaign& campaign, LeaderLease::Effects* more);
  void Do(const lease::Renew& renew, LeaderLease::Effects* more);
  void Do(const lease::Revoke& revoke, LeaderLease::Effects* more);
  void Do(const lease::Lead& lead, LeaderLease::Effects* more);
  void Do(const lease::StepDown& step_down, LeaderLease::Effects* more);
  void Publish(LeaderLease::Effects* effects);
  // Trouble with etcd is logged when it begins, and its end. `fine`: whether there was none so far.
  static void NoteAnswer(const absl::Status& status, absl::string_view consequence, bool* fine);
  // Whether two servers have one address.
  void NoteLeader(const std::string& leader);

  EtcdClient* const client_;
  const EtcdKeys keys_;
  const Settings settings_;
  const Events events_;
  LeaderLease lease_;                               // of the thread
  bool etcd_answers_ = true;                        // of the thread
  bool can_campaign_ = true;                        // of the thread
  std::optional<SteadyTime> own_address_since_;     // of the thread: another process leads at it
  bool own_address_noted_ = false;                  // of the thread
  std::atomic<int64_t> valid_until_ns_{INT64_MIN};  // on the steady clock
  mutable Mutex mutex_;
  CondVar wake_;
  std::string leader_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool fenced_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_HA_LEADERSHIP_H_
