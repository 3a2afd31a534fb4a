#ifndef DDPRUN_RENDEZVOUS_HA_HA_SERVER_H_
#define DDPRUN_RENDEZVOUS_HA_HA_SERVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/ha/etcd_client.h"
#include "rendezvous/ha/etcd_store.h"
#include "rendezvous/ha/follower_server.h"
#include "rendezvous/ha/leadership.h"

namespace ddprun::rendezvous {

struct HaOptions {
  EtcdOptions etcd;
  std::string prefix;
  std::string advertise;  // HOST:PORT, no wildcard; empty: the first listen address
  absl::Duration lease_ttl;
  std::vector<std::string> listen;
  Credentials credentials;
};

// One of several servers that share an etcd (protocol 4.8): follows until it leads. A process leads at most once; when
// it loses the leadership it has to exit.
//
//   Start --> (on_lead) --> the caller serves launchers with store() and epoch() --> Stop
//                              (on_step_down: the caller ends the process at once)
//
// Belongs to one thread, except for the events, which are called on internal threads.
class HaServer {
 public:
  struct Events {
    // This server leads. With OK it has read the records and stopped listening, so that a Server may serve at
    // addresses(); otherwise it can't serve (errors: EtcdStore::Open). Called at most once.
    std::function<void(absl::Status)> on_lead;
    // This server does not lead any more. Called at most once, and only after it led.
    std::function<void(const std::string& reason)> on_step_down;
  };

  // Listens, answers launchers as a follower, and tries to become the leader.
  //   INVALID_ARGUMENT  an etcd option is invalid.
  //   others            as Server::Start.
  static absl::StatusOr<std::unique_ptr<HaServer>> Start(HaOptions options, Events events);
  ~HaServer();  // calls Stop()

  // The listen addresses with their actual ports.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // The leader as this follower knows it (Leadership::leader). Any thread.
  std::string leader() const { return leadership_->leader(); }

  // The leader's store and epoch. REQUIRES: on_lead was called with OK.
  EtcdStore* store() { return store_.get(); }
  int64_t epoch() const { return epoch_; }

  // Releases the leadership; no event follows. A server that is reading the records stops at once. REQUIRES: the caller
  // has stopped acting as the leader.
  void Stop();

 private:
  HaServer(HaOptions options, Events events);

  // Leadership's event: reads the records on a thread of its own, because the leadership must be renewed meanwhile.
  void OnLead(int64_t epoch) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status ReadRecords();

  const HaOptions options_;
  const EtcdKeys keys_;
  const Events events_;
  std::vector<std::string> addresses_;
  std::atomic<int64_t> epoch_ = 0;
  std::unique_ptr<EtcdClient> client_;
  std::unique_ptr<EtcdClient> lease_client_;  // has shorter timeouts
  std::unique_ptr<FollowerServer> follower_;
  std::unique_ptr<Leadership> leadership_;
  std::unique_ptr<EtcdStore> store_;
  Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;  // reader_ waits for etcd
  std::thread reader_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_HA_HA_SERVER_H_
