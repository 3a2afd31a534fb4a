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
  std::vector<std::string> endpoints;  // HOST:PORT of members; not necessarily all
  std::string ca_file;                 // PEM; CA of the members' certificates. Empty: no TLS
  std::string cert_file;               // PEM; this client's certificate and key, if etcd requires one
  std::string key_file;
  std::string user;  // for etcd's own authentication; empty: none
  std::string password;
  // Time that one member may take to answer before the next one is tried.
  absl::Duration patience = absl::Seconds(1);
};

// Calls an etcd cluster. A call goes to the member that answered last. If that member does not answer in time or can't
// serve, the call goes to the next one, until the deadline. A request may therefore reach etcd twice: send only
// idempotent requests. Thread-safe; calls block, at most until their deadline or Stop.
class EtcdClient {
 public:
  //   INVALID_ARGUMENT  a file can't be read, or there is no endpoint; the message names it.
  static absl::StatusOr<std::unique_ptr<EtcdClient>> Create(const EtcdOptions& options);

  // Error messages are written for operators (etcd_problem.h).
  //   UNAVAILABLE        no member answered by the deadline, or each has failed three times; the message has the last
  //                      error.
  //   CANCELLED          Stop was called.
  //   others             as returned by etcd: PERMISSION_DENIED, NOT_FOUND (of a lease), INVALID_ARGUMENT (too large)
  absl::Status Range(const etcdserverpb::RangeRequest& request, SteadyTime deadline,
                     etcdserverpb::RangeResponse* response);
  absl::Status Txn(const etcdserverpb::TxnRequest& request, SteadyTime deadline, etcdserverpb::TxnResponse* response);
  absl::Status LeaseGrant(absl::Duration ttl, SteadyTime deadline, etcdserverpb::LeaseGrantResponse* response);
  //   NOT_FOUND          the lease does not exist (any more).
  absl::Status LeaseKeepAlive(int64_t lease, SteadyTime deadline);
  absl::Status LeaseRevoke(int64_t lease, SteadyTime deadline);

  // Queries each member once. Returns those that do not answer, as "HOST:PORT: reason"; empty if none answers.
  std::vector<std::string> FindSilentMembers();

  // Ends pending calls and all later ones with CANCELLED.
  void Stop();

  // Name for messages: "a:2379,b:2379".
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
  // One attempt at one member, until the deadline.
  grpc::Status Try(const Member& member, SteadyTime deadline, const std::string& token, const Call& call);
  absl::Status Authenticate(const Member& member, SteadyTime deadline);
  std::string Describe(const Member& member, const grpc::Status& status) const;

  const EtcdOptions options_;
  std::vector<Member> members_;
  mutable Mutex mutex_;
  size_t current_ ABSL_GUARDED_BY(mutex_) = 0;  // the member that answered last
  std::string token_ ABSL_GUARDED_BY(mutex_);   // from etcd's authentication
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> under_way_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_HA_ETCD_CLIENT_H_
