#include "rendezvous/state/record_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace ddprun::rendezvous {

void RecordQueue::Start(std::function<bool(Batch batch, SteadyTime taken)> write) {
  thread_ = std::thread([this, write = std::move(write)] { Run(write); });
}

void RecordQueue::SaveRecord(Item item) {
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    queue_.push_back(std::move(item));
  }
  wake_.NotifyAll();
}

void RecordQueue::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void RecordQueue::Run(const std::function<bool(Batch batch, SteadyTime taken)>& write) {
  while (true) {
    Batch batch;
    SteadyTime taken;
    {
      MutexLock lock(&mutex_);
      while (queue_.empty() && !stopping_) wake_.Wait(&mutex_);
      if (queue_.empty()) return;
      taken = SteadyNow();
      batch.swap(queue_);
    }
    if (write(std::move(batch), taken)) continue;
    Batch dropped;  // destroyed after the lock is released
    MutexLock lock(&mutex_);
    stopping_ = true;
    dropped.swap(queue_);
    return;
  }
}

bool RecordQueue::Try(absl::FunctionRef<absl::Status()> attempt) {
  const SteadyTime began = SteadyNow();
  bool failed = false;
  for (absl::Duration wait = waits_.first;; wait = std::min(2 * wait, waits_.longest)) {
    const absl::Status status = attempt();
    if (status.ok()) break;
    if (absl::IsCancelled(status)) return false;
    if (!failed) {
      failed = true;
      const std::string trouble = absl::StrCat("can't write to ", place_, ": ", status.message());
      Log(LogLevel::kError, absl::StrCat(trouble,
                                         "; retrying. No round starts and no job ends until then; running workers are "
                                         "not affected"));
      report_(trouble);
    }
    if (!WaitFor(wait)) return false;
  }
  if (failed) {
    Log(LogLevel::kWarning,
        absl::StrCat(place_, " is writable again after ", absl::FormatDuration(SteadyNow() - began)));
    report_("");
  }
  return true;
}

bool RecordQueue::WaitFor(absl::Duration wait) {
  MutexLock lock(&mutex_);
  const SteadyTime end = SteadyNow() + wait;
  while (!stopping_ && SteadyNow() < end) wake_.WaitUntil(&mutex_, end);
  return !stopping_;
}

}  // namespace ddprun::rendezvous
