#ifndef DDPRUN_RENDEZVOUS_HA_ETCD_KEYS_H_
#define DDPRUN_RENDEZVOUS_HA_ETCD_KEYS_H_

#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/etcd.pb.h"

namespace ddprun::rendezvous {

// Layout of etcd's keys. Thread-safe value.
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

  // Compares true while the leader of this epoch has not been replaced; 0: while there is no leader.
  etcdserverpb::Compare LeaderIs(int64_t epoch) const {
    etcdserverpb::Compare compare;
    compare.set_result(etcdserverpb::Compare::EQUAL);
    compare.set_target(etcdserverpb::Compare::CREATE);
    compare.set_key(Leader());
    compare.set_create_revision(epoch);
    return compare;
  }

  // Compares true if leaders have made this number of writes.
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

inline void AddPut(std::string key, std::string value, etcdserverpb::TxnRequest* txn, int64_t lease = 0) {
  etcdserverpb::PutRequest* const put = txn->add_success()->mutable_request_put();
  put->set_key(std::move(key));
  put->set_value(std::move(value));
  put->set_lease(lease);
}

inline void AddDelete(std::string key, etcdserverpb::TxnRequest* txn) {
  txn->add_success()->mutable_request_delete_range()->set_key(std::move(key));
}

// Reads the key if a comparison fails.
inline void AddReadOnFailure(std::string key, etcdserverpb::TxnRequest* txn) {
  txn->add_failure()->mutable_request_range()->set_key(std::move(key));
}

inline void AddRead(std::string key, etcdserverpb::TxnRequest* txn) {
  txn->add_success()->mutable_request_range()->set_key(std::move(key));
}

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_HA_ETCD_KEYS_H_
