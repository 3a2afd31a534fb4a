#ifndef DDPRUN_RENDEZVOUS_HA_LEADER_LOOKUP_H_
#define DDPRUN_RENDEZVOUS_HA_LEADER_LOOKUP_H_

#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "rendezvous/ha/etcd_client.h"
#include "rendezvous/ha/etcd_keys.h"
#include "rendezvous/ha/leadership.h"

namespace ddprun::rendezvous {

// Looks up the leader for many concurrent callers. One query to etcd answers all requests made before it was sent, and
// none made later, so each answer was true at some time after its request. Thread-safe.
class LeaderLookup {
 public:
  using Done = std::function<void(const absl::StatusOr<LeaderView>&)>;

  // The client must outlive this object.
  LeaderLookup(EtcdClient* client, EtcdKeys keys);
  ~LeaderLookup();  // same as Stop

  // `done` is called once, by the lookup's thread or by Stop.
  void Ask(Done done);

  // Answers pending and later requests with CANCELLED. Later calls do nothing.
  void Stop();

 private:
  void Run();

  EtcdClient* const client_;
  const EtcdKeys keys_;
  Mutex mutex_;
  CondVar wake_;
  std::vector<Done> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_HA_LEADER_LOOKUP_H_
