#ifndef DDPRUN_RENDEZVOUS_STATE_SQLITE_STORE_H_
#define DDPRUN_RENDEZVOUS_STATE_SQLITE_STORE_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rendezvous/base/mutex.h"
#include "rendezvous/base/steady_time.h"
#include "rendezvous/core/job_record.h"
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

  // Makes the folder if need be. A damaged file is set aside as state.db.damaged-SECONDS, with a line in the log.
  //   ALREADY_EXISTS       another process uses the folder.
  //   FAILED_PRECONDITION  a newer version wrote the file.
  //   UNAVAILABLE          it can't be made, read or written.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const std::string& dir);
  // As Stop.
  ~SqliteStore() override;

  // What was found. To be taken once, before anything is kept.
  SavedState TakeSaved() { return std::move(saved_); }

  void Keep(std::shared_ptr<const JobRecord> record, std::string event, std::function<void()> safe) override;
  void ReportTrouble(std::function<void(const std::string& trouble)> report) override { report_ = std::move(report); }

  // Writes what was handed over, if it can be written, and calls nobody after it returns. Later calls do nothing, and
  // nothing is kept any more.
  void Stop();

 private:
  struct Item {
    std::shared_ptr<const JobRecord> record;
    std::string event;
    std::function<void()> safe;
  };
  using Batch = std::deque<Item>;

  explicit SqliteStore(std::string dir) : dir_(std::move(dir)) {}
  absl::Status Lock();
  // Opens the file and reads all of it.
  absl::Status Load();
  absl::Status ReadSaved();
  absl::Status SetAside(const absl::Status& damage);
  void Run();
  // Until it is written, or Stop was called and it can't be.
  bool Write(const Batch& batch);
  absl::Status Commit(const Batch& batch);
  absl::Status ForgetOldest();

  const std::string dir_;
  const SteadyTime opened_ = SteadyNow();
  SteadyTime taken_;  // of the thread: when the present batch was complete; what was heard of until then is in the file
  int lock_ = -1;
  std::unique_ptr<SqliteDb> db_;  // of the thread, once it runs
  SavedState saved_;
  // Of the thread, from the first Keep on.
  std::function<void(const std::string& trouble)> report_ = [](const std::string&) {};
  Mutex mutex_;
  CondVar wake_;
  Batch queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_STATE_SQLITE_STORE_H_
