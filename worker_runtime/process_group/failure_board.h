#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_FAILURE_BOARD_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_FAILURE_BOARD_H_

#include <c10/util/intrusive_ptr.h>

#include <optional>
#include <set>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "worker_runtime/process_group/failure_report.h"

namespace ddprun {

// Exchanges the failure reports of a group's ranks through the store. All reports are in one value, so that the number
// of requests per rank does not depend on the number of ranks.
//
// Threads: any. A call made while another thread is in a call does nothing instead of waiting for the store, except
// that a report is still posted, by the other thread.
class FailureBoard {
 public:
  // `store` should be a separate connection: a connection handles one call at a time, and a trainer may be waiting for
  // a key on the group's connection.
  FailureBoard(c10::intrusive_ptr<c10d::Store> store, int rank, int size);
  ~FailureBoard();
  FailureBoard(const FailureBoard&) = delete;
  FailureBoard& operator=(const FailureBoard&) = delete;

  // Posts this rank's report. Returns when the store has it, or at once if another thread is in a call. Only the first
  // report counts.
  void Post(const FailureReport& report);

  // Returns all reports posted so far.
  FailureReports Read();

  // Waits until `rank`, or every rank, has posted a report, up to `timeout`.
  void Await(int rank, absl::Duration timeout);
  void AwaitAll(absl::Duration timeout);

  // AnnounceRead announces that this rank no longer needs the store; AwaitReaders waits until all ranks except `gone`
  // have announced it.
  void AnnounceRead();
  void AwaitReaders(const std::set<int>& gone, absl::Duration timeout);

  // Runs any other request.
  void Ask(absl::FunctionRef<void(c10d::Store&)> use) { WithStore(use); }

  // True if the store failed to answer.
  bool store_is_lost();

 private:
  // Runs `use` unless another thread is in a call, then posts a report that was submitted meanwhile.
  void WithStore(absl::FunctionRef<void(c10d::Store&)> use);
  void Write(c10d::Store& store, const FailureReport& report) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
  Mutex mutex_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool posted_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<FailureReport> waiting_ ABSL_GUARDED_BY(mutex_);  // to be posted by the thread that is in a call
  bool lost_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_FAILURE_BOARD_H_
