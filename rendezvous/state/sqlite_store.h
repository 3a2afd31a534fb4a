#ifndef DDPRUN_RENDEZVOUS_STATE_SQLITE_STORE_H_
#define DDPRUN_RENDEZVOUS_STATE_SQLITE_STORE_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/steady_time.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/state/record_queue.h"
#include "rendezvous/state/sqlite_db.h"
#include "rendezvous/state/state_store.h"

namespace ddprun::rendezvous {

// A state store in DIR/state.db: the latest record of each live job and of the jobs that ended last (as many as
// EndedJobs remembers), and the last kMaxEvents events. A dedicated thread writes; records handed over during one
// transaction go into the next. While the disk is full or fails, writes are retried, this is logged once, and nothing
// is persisted. Thread-safe.
class SqliteStore final : public StateStore {
 public:
  static constexpr int kMaxEvents = 100'000;

  // Creates the directory if necessary. An unreadable record is set aside alone, and a damaged file as
  // state.db.damaged-SECONDS; both are logged. Earlier servers then count as if they had persisted nothing, because a
  // job without a record may have one that was set aside (SavedState::longest_life).
  //   ALREADY_EXISTS       another process uses the directory.
  //   FAILED_PRECONDITION  a newer version wrote the file.
  //   UNAVAILABLE          it can't be created, read or written.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const std::string& dir);
  // Same as Stop.
  ~SqliteStore() override;

  // The state that was read. Call once, before the first Keep.
  SavedState TakeSaved() { return std::move(saved_); }

  void SaveRecord(std::shared_ptr<const JobRecord> record, std::string event, std::function<void()> safe) override {
    queue_.SaveRecord({std::move(record), std::move(event), std::move(safe)});
  }
  void SetErrorHandler(std::function<void(const std::string& trouble)> report) override {
    queue_.SetErrorHandler(std::move(report));
  }

  // See RecordQueue::Stop.
  void Stop() { queue_.Stop(); }

 private:
  using Batch = RecordQueue::Batch;

  explicit SqliteStore(std::string dir);
  absl::Status Lock();
  // Opens the file and reads all records.
  absl::Status Load();
  absl::Status ReadSaved();
  // Moves the records of these jobs to a separate table; the map has the reasons.
  absl::Status SetRecordsAside(const std::map<std::string, absl::Status>& damaged);
  absl::Status SetAside(const absl::Status& damage);
  // Counts this server among those that have had these records.
  absl::Status CountServer();
  // Writes the items handed over until `taken`.
  bool Write(const Batch& batch, SteadyTime taken);
  absl::Status Commit(const Batch& batch, SteadyTime taken);
  absl::Status ForgetOldest();

  const std::string dir_;
  const SteadyTime opened_ = SteadyNow();
  int lock_ = -1;
  std::unique_ptr<SqliteDb> db_;  // used only by the thread, once it runs
  int64_t servers_ = 1;           // including this one
  SavedState saved_;
  RecordQueue queue_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_STATE_SQLITE_STORE_H_
