#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_FAILURE_BOARD_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_FAILURE_BOARD_H_

#include <c10/util/intrusive_ptr.h>

#include <set>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "rendezvous/base/mutex.h"
#include "worker_runtime/process_group/failure_report.h"

namespace ddprun {

// Where the ranks of a group leave their failure reports for each other: keys of the store.
//
// Threads: any. Calls that come while another thread is in one do nothing, rather than wait for the store.
class FailureBoard {
 public:
  // `store` should be a connection of its own: a connection serves one call at a time, and a trainer may be waiting for
  // a key on the group's.
  FailureBoard(c10::intrusive_ptr<c10d::Store> store, int rank, int size);
  ~FailureBoard();
  FailureBoard(const FailureBoard&) = delete;
  FailureBoard& operator=(const FailureBoard&) = delete;

  // Leaves this rank's report; returns when the store has it. Only the first one counts.
  void Post(const FailureReport& report);

  // The reports there are.
  FailureReports Read();

  // Waits until this rank, or every rank, has left one, at most this long.
  void Await(int rank, absl::Duration timeout);
  void AwaitAll(absl::Duration timeout);

  // Says that this rank needs nothing from the store any more, and waits until all but `gone` have said so.
  void SayRead();
  void AwaitReaders(const std::set<int>& gone, absl::Duration timeout);

  // Any other look at the store.
  void Ask(absl::FunctionRef<void(c10d::Store&)> use) { WithStore(use); }

  // Whether the store did not answer.
  bool store_is_lost();

 private:
  // Runs `use` unless another thread is in one.
  void WithStore(absl::FunctionRef<void(c10d::Store&)> use);

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
  Mutex mutex_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool posted_ ABSL_GUARDED_BY(mutex_) = false;
  bool lost_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_FAILURE_BOARD_H_
