#ifndef DDPRUN_RENDEZVOUS_HA_ETCD_STORE_H_
#define DDPRUN_RENDEZVOUS_HA_ETCD_STORE_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/steady_time.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/ha/etcd_client.h"
#include "rendezvous/state/record_queue.h"
#include "rendezvous/state/state_store.h"

namespace ddprun::rendezvous {

// The leading server's state store in etcd: the latest record of each live job and of the jobs that ended last (as many
// as EndedJobs remembers), one key per job (EtcdKeys in etcd_client.h).
//
// Every write is a transaction that requires this server's epoch, so that writes of a replaced server have no effect.
// It also requires the number of previous writes, so that a write that etcd applies late, after it was retried, has no
// effect either.
//
// A dedicated thread writes; records handed over during one transaction go into the next. While etcd does not answer,
// writes are retried, and this is logged once. A record that is too large for etcd is shortened (job_record.h). If it
// is still too large, it can't be persisted: this is reported through SetJobErrorHandler, and the job waits until it
// has a smaller record, while other jobs continue. Thread-safe.
class EtcdStore final : public StateStore {
 public:
  // Bytes of records in one transaction, unless a single record is larger: below etcd's usual request limit (1.5 MiB,
  // --max-request-bytes), with room for the rest of the request.
  static constexpr size_t kMaxBytesAtOnce = 1'400'000;
  // Records in one transaction: below etcd's limit (128, --max-txn-ops).
  static constexpr size_t kMaxRecordsAtOnce = 50;

  struct Leader {
    int64_t epoch;
    std::function<bool()> owns;       // true if this server still leads, as far as it knows
    std::function<void()> on_fenced;  // a write was refused because it does not; no more writes follow
  };

  // Reads the records of earlier leaders. The client must outlive the store. An unreadable record is set aside under
  // another key and logged. Earlier leaders then count as if they had persisted nothing, because a job without a record
  // may have one that was set aside (SavedState::longest_life).
  //   DATA_LOSS            a key of the server itself can't be read; the message names it.
  //   FAILED_PRECONDITION  another server leads.
  //   UNAVAILABLE          etcd does not answer.
  static absl::StatusOr<std::unique_ptr<EtcdStore>> Open(EtcdClient* client, EtcdKeys keys, Leader leader);

  // The state that was read. Call once, before the first Keep.
  SavedState TakeSaved() { return std::move(saved_); }

  void SaveRecord(std::shared_ptr<const JobRecord> record, std::string, std::function<void()> safe) override {
    queue_.SaveRecord({std::move(record), std::string(), std::move(safe)});
  }
  void SetErrorHandler(std::function<void(const std::string& trouble)> report) override {
    queue_.SetErrorHandler(std::move(report));
  }
  void SetJobErrorHandler(std::function<void(const std::string& job_id, const std::string& trouble)> report) override {
    report_job_ = std::move(report);
  }
  bool Owned() const override { return leader_.owns(); }

  // See RecordQueue::Stop.
  void Stop() { queue_.Stop(); }

 private:
  using Batch = RecordQueue::Batch;
  // An item with the serialized record.
  struct Encoded {
    RecordQueue::Item item;
    std::string bytes;
  };
  // A remembered ended job.
  struct Ended {
    std::string job_id;
    uint64_t highest_round = 0;
    size_t nodes = 0;
  };

  EtcdStore(EtcdClient* client, EtcdKeys keys, Leader leader)
      : client_(client),
        keys_(std::move(keys)),
        leader_(std::move(leader)),
        queue_("etcd", {.longest = absl::Seconds(1)}) {}
  // Retries `attempt` for a while if etcd does not answer.
  absl::Status RetryWhileUnavailable(absl::FunctionRef<absl::Status()> attempt);
  absl::Status Load();
  absl::Status LoadJobs(int64_t revision);
  absl::Status SetAside(const etcdserverpb::KeyValue& record, const absl::Status& problem);
  // Returns false if Stop was called or another server leads.
  bool Write(Batch batch, SteadyTime taken);
  // Writes one transaction; if that is too large for etcd, one record at a time.
  bool WriteSome(std::vector<Encoded> records, SteadyTime taken);
  // The records are written. This also completes earlier too-large records of their jobs, because each record contains
  // the whole job.
  void CallSafe(const std::vector<Encoded>& records);
  void OnTooLarge(Encoded record);
  // The conditions of every write.
  etcdserverpb::TxnRequest NewTxn() const;
  etcdserverpb::TxnRequest MakeTxn(const std::vector<Encoded>& records, SteadyTime taken);
  // CANCELLED: another server leads, or the client was stopped.
  absl::Status Commit(const etcdserverpb::TxnRequest& txn);
  // True if a refused write was applied by an earlier attempt whose answer was lost.
  bool WasApplied(const etcdserverpb::TxnResponse& refusal) const;
  void AddRecord(const JobRecord& record, const std::string& bytes, etcdserverpb::TxnRequest* txn);
  void ForgetOldest(etcdserverpb::TxnRequest* txn);

  EtcdClient* const client_;
  const EtcdKeys keys_;
  const Leader leader_;
  const SteadyTime opened_ = SteadyNow();
  SavedState saved_;
  // Used only by the thread, once it runs.
  absl::Duration longest_life_;
  uint64_t forgotten_round_ = 0;
  int64_t writes_ = 0;                  // writes of all leaders that etcd has applied
  std::vector<std::string> forgotten_;  // ended jobs whose keys are still to be deleted
  std::map<std::string, std::vector<std::function<void()>>> too_large_;  // callbacks of waiting records, by job
  std::function<void(const std::string& job_id, const std::string& trouble)> report_job_ = [](const std::string&,
                                                                                              const std::string&) {};
  std::map<uint64_t, Ended> ended_;           // in the order in which they ended
  std::map<std::string, uint64_t> ended_at_;  // keys of ended_, by job
  size_t ended_nodes_ = 0;
  uint64_t last_ended_ = 0;
  RecordQueue queue_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_HA_ETCD_STORE_H_
