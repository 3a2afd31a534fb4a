#ifndef DDPRUN_RENDEZVOUS_HA_HA_SERVER_H_
#define DDPRUN_RENDEZVOUS_HA_HA_SERVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/ha/etcd_client.h"
#include "rendezvous/ha/etcd_store.h"
#include "rendezvous/ha/follower_server.h"
#include "rendezvous/ha/leader_lookup.h"
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

// One of several servers that share an etcd: follows until it leads. A process leads at most once; when it loses the
// leadership it has to exit.
//
//   Start --> (on_lead) --> Lead --> the caller serves launchers with store() and epoch() --> Stop
//                                       (on_step_down: the caller ends the process at once)
//
// Belongs to one thread, except for the events, which are called on internal threads.
class HaServer {
 public:
  struct Events {
    std::function<void()> on_lead;  // Lead has to be called
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

  // Reads the records and stops listening, so that a Server may then serve at addresses(). REQUIRES: on_lead was
  // called. Errors: see EtcdStore::Open. May be called from another thread.
  absl::Status Lead();
  // Makes Lead, which may wait for etcd, return at once, with CANCELLED if it has not read everything.
  void CancelLead();

  // The leader's store and epoch. REQUIRES: Lead was called.
  EtcdStore* store() { return store_.get(); }
  int64_t epoch() const { return epoch_; }

  // Releases the leadership; no event follows. REQUIRES: the caller has stopped acting as the leader.
  void Stop();

 private:
  HaServer(HaOptions options, Events events);

  const HaOptions options_;
  const EtcdKeys keys_;
  const Events events_;
  std::vector<std::string> addresses_;
  std::atomic<int64_t> epoch_ = 0;
  std::unique_ptr<EtcdClient> client_;
  std::unique_ptr<EtcdClient> lease_client_;  // with shorter timeouts
  std::unique_ptr<LeaderLookup> lookup_;
  std::unique_ptr<FollowerServer> follower_;
  std::unique_ptr<Leadership> leadership_;
  std::unique_ptr<EtcdStore> store_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_HA_HA_SERVER_H_
