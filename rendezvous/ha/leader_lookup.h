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

// Answers who leads, for many that ask at once: one question to etcd answers all who asked before it was sent, and none
// who asked later, so that each answer is true of a moment after it was asked for. Thread-safe.
class LeaderLookup {
 public:
  using Done = std::function<void(const absl::StatusOr<LeaderView>&)>;

  // The client outlives it.
  LeaderLookup(EtcdClient* client, EtcdKeys keys);
  ~LeaderLookup();  // as Stop

  // `done` is called once, by the lookup's thread, or by Stop.
  void Ask(Done done);

  // Answers those that wait, and later ones, with CANCELLED. Later calls do nothing.
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
