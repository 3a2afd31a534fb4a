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
#include "rendezvous/ha/etcd_keys.h"
#include "rendezvous/state/record_queue.h"
#include "rendezvous/state/state_store.h"

namespace ddprun::rendezvous {

// A state store in etcd, of the server that leads: the newest record of each live job and those of the jobs that ended
// last (as many as EndedJobs remembers), one key a job (etcd_keys.h). Every write is a transaction that requires this
// server's epoch, so that the writes of a server that was replaced change nothing; and how many writes there were
// before it, so that one that etcd applies late, after it was sent again, changes nothing either. A thread of its own
// writes: what was handed over while one transaction ran goes into the next. While etcd does not answer it tries again,
// and says so once. A record that etcd finds too large is shortened (short_record.h). If it still is too large, it
// can't be kept: that is reported as its job's trouble, and the job waits until it has a smaller one, while others go
// on. Thread-safe.
class EtcdStore final : public StateStore {
 public:
  // Records in one transaction, unless one alone has more: below etcd's usual limit for a request (1.5 MiB,
  // --max-request-bytes), with room for all else in it.
  static constexpr size_t kMaxBytesAtOnce = 1'400'000;
  // Below etcd's limit (128, --max-txn-ops): records in one transaction.
  static constexpr size_t kMaxRecordsAtOnce = 50;

  struct Leader {
    int64_t epoch;
    std::function<bool()> owns;       // whether this server still leads, as far as it knows
    std::function<void()> on_fenced;  // a write was refused because it does not; nothing is written any more
  };

  // Reads what earlier leaders have kept. The client outlives the store. A record that can't be read is set aside under
  // another key, with a line in the log. Earlier leaders then count as if they had kept nothing: jobs without a record
  // may have one that was set aside (SavedState::longest_life).
  //   DATA_LOSS            a key of the server itself can't be read; the message names it.
  //   FAILED_PRECONDITION  another server leads.
  //   UNAVAILABLE          etcd does not answer.
  static absl::StatusOr<std::unique_ptr<EtcdStore>> Open(EtcdClient* client, EtcdKeys keys, Leader leader);

  // What was found. To be taken once, before anything is kept.
  SavedState TakeSaved() { return std::move(saved_); }

  void Keep(std::shared_ptr<const JobRecord> record, std::string, std::function<void()> safe) override {
    queue_.Keep({std::move(record), std::string(), std::move(safe)});
  }
  void ReportTrouble(std::function<void(const std::string& trouble)> report) override {
    queue_.ReportTrouble(std::move(report));
  }
  void ReportJobTrouble(std::function<void(const std::string& job_id, const std::string& trouble)> report) override {
    report_job_ = std::move(report);
  }
  bool Owned() const override { return leader_.owns(); }

  // See RecordQueue::Stop.
  void Stop() { queue_.Stop(); }

 private:
  using Batch = RecordQueue::Batch;
  // An item with the bytes of its record, which are made once.
  struct Encoded {
    RecordQueue::Item item;
    std::string bytes;
  };
  // An ended job that is remembered.
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
  // Calls `attempt` again while etcd does not answer, for a while.
  absl::Status Patiently(absl::FunctionRef<absl::Status()> attempt);
  absl::Status Load();
  absl::Status LoadJobs(int64_t revision);
  absl::Status SetAside(const etcdserverpb::KeyValue& record, const absl::Status& problem);
  // False: Stop was called, or another server leads.
  bool Write(Batch batch, SteadyTime taken);
  // In one transaction; if etcd finds that too large, one record after the other.
  bool WriteSome(std::vector<Encoded> records, SteadyTime taken);
  // They are written; so are those of their jobs that were too large, because each record has all of its job.
  void CallSafe(const std::vector<Encoded>& records);
  void OnTooLarge(Encoded record);
  // What every write begins with.
  etcdserverpb::TxnRequest NewTxn() const;
  etcdserverpb::TxnRequest MakeTxn(const std::vector<Encoded>& records, SteadyTime taken);
  // CANCELLED: another server leads, or the client was shut down.
  absl::Status Commit(const etcdserverpb::TxnRequest& txn);
  // Of a write that was refused: an earlier try of the same one had been applied, but was not answered.
  bool WasApplied(const etcdserverpb::TxnResponse& refusal) const;
  void AddRecord(const JobRecord& record, const std::string& bytes, etcdserverpb::TxnRequest* txn);
  void ForgetOldest(etcdserverpb::TxnRequest* txn);

  EtcdClient* const client_;
  const EtcdKeys keys_;
  const Leader leader_;
  const SteadyTime opened_ = SteadyNow();
  SavedState saved_;
  // Of the thread, once it runs.
  absl::Duration longest_life_;
  uint64_t forgotten_round_ = 0;
  int64_t writes_ = 0;                  // of all leaders, that etcd has applied
  std::vector<std::string> forgotten_;  // ended jobs whose keys are still to be deleted
  std::map<std::string, std::vector<std::function<void()>>> too_large_;  // by job: `safe` of those that wait
  std::function<void(const std::string& job_id, const std::string& trouble)> report_job_ = [](const std::string&,
                                                                                              const std::string&) {};
  std::map<uint64_t, Ended> ended_;           // by the order in which they ended
  std::map<std::string, uint64_t> ended_at_;  // its keys, by job
  size_t ended_nodes_ = 0;
  uint64_t last_ended_ = 0;
  RecordQueue queue_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_HA_ETCD_STORE_H_
