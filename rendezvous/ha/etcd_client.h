#ifndef DDPRUN_RENDEZVOUS_HA_ETCD_CLIENT_H_
#define DDPRUN_RENDEZVOUS_HA_ETCD_CLIENT_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "proto/etcd.grpc.pb.h"

namespace ddprun::rendezvous {

struct EtcdOptions {
  std::vector<std::string> endpoints;  // HOST:PORT of members; any number of them
  std::string ca_file;                 // PEM; who signed the members' certificates. Empty: no TLS
  std::string cert_file;               // PEM; this client's certificate and key, if etcd asks for one
  std::string key_file;
  std::string user;  // of etcd's own authentication; empty: none
  std::string password;
  // The most that one member may take to answer before the next one is asked.
  absl::Duration patience = absl::Seconds(1);
};

// Calls to an etcd cluster. A call goes to the member that answered last; if that fails to answer in time, or says that
// it can't serve, to the next, until the deadline. So a request may reach etcd twice: callers send only what may be
// repeated. Thread-safe; calls block their caller, at most until their deadline or Stop.
class EtcdClient {
 public:
  //   INVALID_ARGUMENT  a file can't be read, or there is no endpoint; the message names it.
  static absl::StatusOr<std::unique_ptr<EtcdClient>> Create(const EtcdOptions& options);

  // Messages are for operators (etcd_problem.h).
  //   UNAVAILABLE        no member answered by the deadline, or all have failed three times before; the message says
  //                      what the last one said.
  //   CANCELLED          Stop was called.
  //   others             as etcd says: PERMISSION_DENIED, NOT_FOUND (of a lease), INVALID_ARGUMENT (too large) ...
  absl::Status Range(const etcdserverpb::RangeRequest& request, SteadyTime deadline,
                     etcdserverpb::RangeResponse* response);
  absl::Status Txn(const etcdserverpb::TxnRequest& request, SteadyTime deadline, etcdserverpb::TxnResponse* response);
  absl::Status LeaseGrant(absl::Duration ttl, SteadyTime deadline, etcdserverpb::LeaseGrantResponse* response);
  //   NOT_FOUND          there is no such lease any more.
  absl::Status LeaseKeepAlive(int64_t lease, SteadyTime deadline);
  absl::Status LeaseRevoke(int64_t lease, SteadyTime deadline);

  // Asks each member once: those that don't answer, "HOST:PORT: why". Empty if none answers.
  std::vector<std::string> FindSilentMembers();

  // Ends the calls that are under way, and all later ones, with CANCELLED.
  void Stop();

  // For messages: "a:2379,b:2379".
  std::string Name() const;

 private:
  struct Member {
    std::string endpoint;
    std::unique_ptr<etcdserverpb::KV::Stub> kv;
    std::unique_ptr<etcdserverpb::Lease::Stub> lease;
    std::unique_ptr<etcdserverpb::Auth::Stub> auth;
  };
  using Call = std::function<grpc::Status(const Member& member, grpc::ClientContext* context)>;

  explicit EtcdClient(const EtcdOptions& options) : options_(options) {}
  absl::Status Connect();
  absl::Status Run(SteadyTime deadline, const Call& call);
  // One try at one member, until the deadline.
  grpc::Status Try(const Member& member, SteadyTime deadline, const std::string& token, const Call& call);
  absl::Status Authenticate(const Member& member, SteadyTime deadline);
  std::string Describe(const Member& member, const grpc::Status& status) const;

  const EtcdOptions options_;
  std::vector<Member> members_;
  mutable Mutex mutex_;
  size_t current_ ABSL_GUARDED_BY(mutex_) = 0;  // the member that answered last
  std::string token_ ABSL_GUARDED_BY(mutex_);   // of etcd's authentication
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> under_way_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_HA_ETCD_CLIENT_H_
