#ifndef DDPRUN_RENDEZVOUS_STATE_RECORD_QUEUE_H_
#define DDPRUN_RENDEZVOUS_STATE_RECORD_QUEUE_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "rendezvous/core/job_record.h"

namespace ddprun::rendezvous {

// What state stores have in common: records wait in a queue for a thread that writes them, so that nobody waits for a
// store. What is handed over while one batch is written goes into the next. Thread-safe.
class RecordQueue {
 public:
  // The arguments of StateStore::Keep.
  struct Item {
    std::shared_ptr<const JobRecord> record;
    std::string event;
    std::function<void()> safe;
  };
  using Batch = std::deque<Item>;
  // Between attempts; each is twice the one before.
  struct Waits {
    absl::Duration first = absl::Milliseconds(50);
    absl::Duration longest;
  };

  // `place`: what is written to, as in "can't write to PLACE".
  RecordQueue(std::string place, Waits waits) : place_(std::move(place)), waits_(waits) {}
  ~RecordQueue() { Stop(); }

  // See StateStore::ReportTrouble. Call before the first Keep, if at all.
  void ReportTrouble(std::function<void(const std::string& trouble)> report) { report_ = std::move(report); }

  // Starts the thread, which calls `write` with all that was handed over until `taken`; `write` calls Try and, for what
  // was written, `safe`. False: nothing more can be written; the thread ends, and nothing is kept any more. Call once.
  void Start(std::function<bool(Batch batch, SteadyTime taken)> write);

  void Keep(Item item);

  // Writes what was handed over, if it can be written, and calls nobody after it returns. Later calls do nothing, and
  // nothing is kept any more.
  void Stop();

  // The following are for `write`.

  // Calls `attempt` until it returns OK. While it fails, says so once, in the log and to ReportTrouble's function.
  // False: Stop was called and it failed, or it returned CANCELLED, which no other attempt would change.
  bool Try(absl::FunctionRef<absl::Status()> attempt);

  // False: Stop was called.
  bool WaitFor(absl::Duration wait);

 private:
  void Run(const std::function<bool(Batch batch, SteadyTime taken)>& write);

  const std::string place_;
  const Waits waits_;
  std::function<void(const std::string& trouble)> report_ = [](const std::string&) {};  // of the thread
  Mutex mutex_;
  CondVar wake_;
  Batch queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_STATE_RECORD_QUEUE_H_
