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

// Common part of state stores: a queue of records and the thread that writes them, so that callers never wait for the
// store. Records handed over while one batch is written go into the next. Thread-safe.
class RecordQueue {
 public:
  // The arguments of StateStore::Keep.
  struct Item {
    std::shared_ptr<const JobRecord> record;
    std::string event;
    std::function<void()> safe;
  };
  using Batch = std::deque<Item>;
  // Waits between attempts; each is twice the previous one.
  struct Waits {
    absl::Duration first = absl::Milliseconds(50);
    absl::Duration longest;
  };

  // `place`: the target, as in "can't write to PLACE".
  RecordQueue(std::string place, Waits waits) : place_(std::move(place)), waits_(waits) {}
  ~RecordQueue() { Stop(); }

  // See StateStore::SetErrorHandler. Call before the first Keep, if at all.
  void SetErrorHandler(std::function<void(const std::string& trouble)> report) { report_ = std::move(report); }

  // Starts the thread, which calls `write` with all items handed over until `taken`; `write` calls Try and, for written
  // items, `safe`. If `write` returns false, nothing more can be written: the thread ends and later items are dropped.
  // Call once.
  void Start(std::function<bool(Batch batch, SteadyTime taken)> write);

  void SaveRecord(Item item);

  // Writes the queued items, if possible, and calls no function after it returns. Later calls do nothing; later items
  // are dropped.
  void Stop();

  // The functions below are for `write`.

  // Calls `attempt` until it returns OK. The first failure is reported once, in the log and to SetErrorHandler's
  // function. Returns false if it failed and Stop was called, or if it returned CANCELLED, which is not retried.
  bool Try(absl::FunctionRef<absl::Status()> attempt);

  // Returns false if Stop was called.
  bool WaitFor(absl::Duration wait);

 private:
  void Run(const std::function<bool(Batch batch, SteadyTime taken)>& write);

  const std::string place_;
  const Waits waits_;
  std::function<void(const std::string& trouble)> report_ = [](const std::string&) {};  // used by the thread
  Mutex mutex_;
  CondVar wake_;
  Batch queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_STATE_RECORD_QUEUE_H_
