#ifndef DDPRUN_RENDEZVOUS_HA_ETCD_CLIENT_H_
#define DDPRUN_RENDEZVOUS_HA_ETCD_CLIENT_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "proto/etcd.grpc.pb.h"
#include "proto/etcd.pb.h"

// etcd as the servers of one site use it (protocol 4.8): EtcdClient calls its members, EtcdKeys is the layout of the
// keys.
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
  ~EtcdClient();

  // Creates a client; does not connect yet.
  //   INVALID_ARGUMENT  a file can't be read, or there is no endpoint; the message names it.
  static absl::StatusOr<std::unique_ptr<EtcdClient>> Create(const EtcdOptions& options);

  // Calls of etcd's API. Error messages are written for operators (DescribeEtcdProblem).
  //   UNAVAILABLE        no member answered by the deadline, or each has failed three times; the message has the last
  //                      error.
  //   CANCELLED          Stop was called.
  //   others             as returned by etcd: PERMISSION_DENIED, NOT_FOUND (of a lease), INVALID_ARGUMENT (too large)
  absl::Status Range(const etcdserverpb::RangeRequest& request, SteadyTime deadline,
                     etcdserverpb::RangeResponse* response);
  absl::Status Txn(const etcdserverpb::TxnRequest& request, SteadyTime deadline, etcdserverpb::TxnResponse* response);
  absl::Status LeaseGrant(absl::Duration ttl, SteadyTime deadline, etcdserverpb::LeaseGrantResponse* response);
  // Renewals share one stream, which is reopened at another member when it fails.
  //   NOT_FOUND          the lease does not exist (any more).
  absl::Status LeaseKeepAlive(int64_t lease, SteadyTime deadline);
  absl::Status LeaseRevoke(int64_t lease, SteadyTime deadline);
  // Watches the key at one member, without other requests than one for progress when the member has been silent for
  // twice the patience. Returns OK at the deadline, or when the key has changed after the revision or may have (the
  // revision is compacted).
  //   UNAVAILABLE        the member does not answer, or it has no leader; later calls go to another one.
  //   CANCELLED          Stop was called.
  absl::Status AwaitChange(const std::string& key, int64_t revision, SteadyTime deadline);

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
    std::unique_ptr<etcdserverpb::Watch::Stub> watch;
    std::unique_ptr<etcdserverpb::Auth::Stub> auth;
  };
  using Call = std::function<grpc::Status(const Member& member, grpc::ClientContext* context)>;
  class Context;
  template <typename Request, typename Response>
  class Stream;
  using KeepAliveStream = Stream<etcdserverpb::LeaseKeepAliveRequest, etcdserverpb::LeaseKeepAliveResponse>;
  using WatchStream = Stream<etcdserverpb::WatchRequest, etcdserverpb::WatchResponse>;

  explicit EtcdClient(const EtcdOptions& options);
  absl::Status Connect();
  absl::Status Run(SteadyTime deadline, const Call& call);
  // One attempt at one member, until the deadline.
  grpc::Status Try(const Member& member, SteadyTime deadline, const Call& call);
  absl::Status Authenticate(const Member& member, SteadyTime deadline);
  // Later calls go to another member, if they would go to this one.
  void LeaveMember(size_t index);
  std::string Describe(const Member& member, const grpc::Status& status) const;

  const EtcdOptions options_;
  std::vector<Member> members_;
  mutable Mutex mutex_;
  size_t current_ ABSL_GUARDED_BY(mutex_) = 0;  // the member that answered last
  std::string token_ ABSL_GUARDED_BY(mutex_);   // from etcd's authentication
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> under_way_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<KeepAliveStream> keep_alive_ ABSL_GUARDED_BY(mutex_);  // while no renewal is under way
};

// Names of the keys, and conditions on them. Thread-safe value.
//
//   PREFIX/leader     address of the leader, bound to its lease. Its create revision is the leader's epoch
//   PREFIX/epoch      the same address, without a lease: its mod revision is the epoch of the latest leader,
//                     and its version counts the leaders
//   PREFIX/jobs/ID    StoredRecord of a job
//   PREFIX/damaged/ID StoredRecord of a job that a leader could not read, unchanged
//   PREFIX/forgotten  highest round of all forgotten jobs (decimal)
//   PREFIX/life       longest time that one leader has led, in milliseconds (decimal); put by each write of a leader,
//                     so that its version counts the writes
class EtcdKeys {
 public:
  explicit EtcdKeys(absl::string_view prefix)
      : prefix_(absl::EndsWith(prefix, "/") ? std::string(prefix) : absl::StrCat(prefix, "/")) {}

  std::string Leader() const { return absl::StrCat(prefix_, "leader"); }
  std::string Epoch() const { return absl::StrCat(prefix_, "epoch"); }
  std::string Forgotten() const { return absl::StrCat(prefix_, "forgotten"); }
  std::string Life() const { return absl::StrCat(prefix_, "life"); }
  std::string Jobs() const { return absl::StrCat(prefix_, "jobs/"); }
  std::string JobsEnd() const { return absl::StrCat(prefix_, "jobs0"); }  // '0' follows '/'
  std::string Job(absl::string_view job_id) const { return absl::StrCat(Jobs(), job_id); }

  std::string Damaged(absl::string_view job_id) const { return absl::StrCat(prefix_, "damaged/", job_id); }

  // Returns a condition that holds while the leader of this epoch leads; 0: while there is no leader.
  etcdserverpb::Compare LeaderIs(int64_t epoch) const {
    etcdserverpb::Compare compare;
    compare.set_result(etcdserverpb::Compare::EQUAL);
    compare.set_target(etcdserverpb::Compare::CREATE);
    compare.set_key(Leader());
    compare.set_create_revision(epoch);
    return compare;
  }

  // Returns a condition that holds if leaders have made this number of writes.
  etcdserverpb::Compare WrittenTimes(int64_t writes) const {
    etcdserverpb::Compare compare;
    compare.set_result(etcdserverpb::Compare::EQUAL);
    compare.set_target(etcdserverpb::Compare::VERSION);
    compare.set_key(Life());
    compare.set_version(writes);
    return compare;
  }

 private:
  std::string prefix_;
};

// Append operations to a transaction, which run if all its conditions hold; AddReadOnFailure: if one does not.
inline void AddPut(std::string key, std::string value, etcdserverpb::TxnRequest* txn, int64_t lease = 0) {
  etcdserverpb::PutRequest* const put = txn->add_success()->mutable_request_put();
  put->set_key(std::move(key));
  put->set_value(std::move(value));
  put->set_lease(lease);
}

inline void AddDelete(std::string key, etcdserverpb::TxnRequest* txn) {
  txn->add_success()->mutable_request_delete_range()->set_key(std::move(key));
}

inline void AddReadOnFailure(std::string key, etcdserverpb::TxnRequest* txn) {
  txn->add_failure()->mutable_request_range()->set_key(std::move(key));
}

inline void AddRead(std::string key, etcdserverpb::TxnRequest* txn) {
  txn->add_success()->mutable_request_range()->set_key(std::move(key));
}

// PURE: tells an operator why a call to etcd failed and what to do, given the message of gRPC or etcd: "connection
// refused; check --etcd, and that etcd runs there". `has_tls`: the connection uses TLS.
std::string DescribeEtcdProblem(absl::string_view message, bool has_tls);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_HA_ETCD_CLIENT_H_
