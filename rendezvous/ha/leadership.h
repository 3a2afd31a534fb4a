#ifndef DDPRUN_RENDEZVOUS_HA_LEADERSHIP_H_
#define DDPRUN_RENDEZVOUS_HA_LEADERSHIP_H_

#include <atomic>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "rendezvous/ha/etcd_client.h"
#include "rendezvous/ha/leader_lease.h"

namespace ddprun::rendezvous {

// The leader according to etcd at one moment.
struct LeaderView {
  std::string address;   // HOST:PORT; empty: no leader
  int64_t epoch = 0;     // epoch of the latest leader, which may not lead any more; 0: there was none
  int64_t revision = 0;  // revision of etcd at that moment
};

// Queries etcd. The answer was true at some time after the call began.
absl::StatusOr<LeaderView> AskForLeader(EtcdClient* client, const EtcdKeys& keys, SteadyTime deadline);

// Carries out the effects of a LeaderLease: a dedicated thread calls etcd. A follower watches the leader's key, so it
// asks etcd only when the key changes. Thread-safe. The client must outlive this object and is not used by others,
// because Stop may stop it.
class Leadership {
 public:
  struct Settings {
    std::string advertise;  // HOST:PORT at which launchers reach this server
    absl::Duration ttl;
  };
  struct Events {
    std::function<void(int64_t epoch)> on_lead;                   // this server leads; at most once
    std::function<void(const std::string& reason)> on_step_down;  // it has stopped leading, permanently; after on_lead
  };

  // Events come from the thread. They may start during the constructor and end before Stop returns.
  Leadership(EtcdClient* client, EtcdKeys keys, Settings settings, Events events);
  ~Leadership();  // same as Stop

  // True if this server may act as the leader now. Once false after on_lead, it stays false.
  bool MayAct() const { return SteadyNow().since_start() < absl::Nanoseconds(valid_until_ns_.load()); }

  // While this server follows: HOST:PORT of the leader as last reported by etcd; empty: none, or etcd does not answer.
  std::string leader() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Reports that etcd refused a write because another server leads.
  void OnFenced();

  // Resigns, so that another server need not wait for the lease to expire, and ends the thread. Later calls do nothing.
  // Must not be called from an event.
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
  // Logs when problems with etcd begin, have another cause, and end. `problems`: in and out, the causes that were
  // logged since they began.
  static void LogEtcdChange(const absl::Status& status, absl::string_view consequence, std::set<std::string>* problems);
  // Detects two servers with the same address.
  void NoteLeader(const std::string& leader);

  EtcdClient* const client_;
  const EtcdKeys keys_;
  const Settings settings_;
  const Events events_;
  LeaderLease lease_;  // used by the thread only, like the next four members
  std::set<std::string> read_problems_;
  std::set<std::string> lead_problems_;
  LeaderView view_;  // the last one; empty: none, or etcd did not answer
  // Set while another process leads at this server's address: when to report that. Infinite future: reported.
  std::optional<SteadyTime> own_address_alarm_;
  std::atomic<int64_t> valid_until_ns_{INT64_MIN};  // end of the leadership on the steady clock, in ns
  mutable Mutex mutex_;
  CondVar wake_;
  std::string leader_ ABSL_GUARDED_BY(mutex_);
  bool observing_ ABSL_GUARDED_BY(mutex_) = false;  // there is no lease to revoke, and Stop ends calls to etcd
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool fenced_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_HA_LEADERSHIP_H_
