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

// A state store in DIR/state.db: the newest record of each live job, those of the jobs that ended last (as many as
// EndedJobs remembers), and the last kMaxEvents events. A thread of its own writes: what was handed over while one
// transaction ran goes into the next. While the disk is full or fails it tries again, and says so once; nothing is safe
// meanwhile. Thread-safe.
class SqliteStore final : public StateStore {
 public:
  static constexpr int kMaxEvents = 100'000;

  // Makes the folder if need be. A record that can't be read is set aside alone, and a damaged file as
  // state.db.damaged-SECONDS, with a line in the log. The servers before this one then count as if they had kept
  // nothing: jobs without a record may have one that was set aside (SavedState::longest_life).
  //   ALREADY_EXISTS       another process uses the folder.
  //   FAILED_PRECONDITION  a newer version wrote the file.
  //   UNAVAILABLE          it can't be made, read or written.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const std::string& dir);
  // As Stop.
  ~SqliteStore() override;

  // What was found. To be taken once, before anything is kept.
  SavedState TakeSaved() { return std::move(saved_); }

  void Keep(std::shared_ptr<const JobRecord> record, std::string event, std::function<void()> safe) override {
    queue_.Keep({std::move(record), std::move(event), std::move(safe)});
  }
  void ReportTrouble(std::function<void(const std::string& trouble)> report) override {
    queue_.ReportTrouble(std::move(report));
  }

  // See RecordQueue::Stop.
  void Stop() { queue_.Stop(); }

 private:
  using Batch = RecordQueue::Batch;

  explicit SqliteStore(std::string dir);
  absl::Status Lock();
  // Opens the file and reads all of it.
  absl::Status Load();
  absl::Status ReadSaved();
  // Moves the records of these jobs to a table of their own; the map says why they can't be read.
  absl::Status SetRecordsAside(const std::map<std::string, absl::Status>& damaged);
  absl::Status SetAside(const absl::Status& damage);
  // This server is one that has had these records.
  absl::Status CountServer();
  // What was heard of until `taken` is in the file afterwards.
  bool Write(const Batch& batch, SteadyTime taken);
  absl::Status Commit(const Batch& batch, SteadyTime taken);
  absl::Status ForgetOldest();

  const std::string dir_;
  const SteadyTime opened_ = SteadyNow();
  int lock_ = -1;
  std::unique_ptr<SqliteDb> db_;  // of the thread, once it runs
  int64_t servers_ = 1;           // with this one
  SavedState saved_;
  RecordQueue queue_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_STATE_SQLITE_STORE_H_
