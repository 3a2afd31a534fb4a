#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_PROCESS_GROUP_IMPL_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_PROCESS_GROUP_IMPL_H_

#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/background_calls.h"
#include "base/mutex.h"
#include "worker_runtime/process_group/backend_choice.h"
#include "worker_runtime/process_group/failure_board.h"
#include "worker_runtime/process_group/failure_report.h"
#include "worker_runtime/process_group/gloo_backend.h"
#include "worker_runtime/process_group/nccl_loader.h"
#include "worker_runtime/process_group/peers.h"
#include "worker_runtime/process_group/process_group.h"

namespace c10d {
class Backend;
}  // namespace c10d

namespace ddprun {

// State of a process group; its creation is in process_group.cc, its failure and end are in process_group_failure.cc.
// The members without a trailing underscore are set at creation and not changed before Release.
class ProcessGroup::Impl {
 public:
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank;  // unknown in CreateWithStore
  std::string name;
  std::string error_prefix;  // for subgroups, whose ranks differ from the job's
  std::string backend_text;
  bool store_on_rank_0 = false;  // the store ends with rank 0
  bool several_hosts = false;
  ProcessGroupOptions options;
  c10::Device device = c10::Device(c10::DeviceType::CPU);       // for tensors of the group's own
  c10::Device cuda_device = c10::Device(c10::DeviceType::CPU);  // a GPU if it has CUDA tensors
  bool bound_to_gpu = false;                                    // NCCL is used, and this rank's device is a GPU

  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::Store> failure_store;  // the same keys through another connection
  Peers peers;
  std::shared_ptr<FailureBoard> board;
  std::unique_ptr<GlooBackend> gloo;
  c10::intrusive_ptr<c10d::Backend> nccl;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  int subgroups_made = 0;

  // Meets the other ranks in `fresh_store`, then creates `group`, which LibTorch's logs call `unique_name`.
  absl::Status Form(c10::intrusive_ptr<c10d::Store> fresh_store, const std::string& unique_name);

  // See ProcessGroup.
  absl::Status ConnectNccl();

  // Returns OK, or the reason why `operation` can no longer run.
  absl::Status Usable(absl::string_view operation);

  // See ProcessGroup. `timeout` is that of the operation.
  absl::Status Try(absl::string_view operation, absl::Duration timeout, absl::FunctionRef<absl::Status()> body);

  // Returns OK, or the error of a collective that was enqueued earlier. Always OK for Gloo, which waits for each.
  absl::Status NcclHealth(absl::string_view operation, absl::Duration timeout);

  // Returns the error for an exception that `operation` threw. If a connection failed, breaks all others, so that the
  // failure reaches all ranks at once, and the group stays failed.
  absl::Status Explain(absl::string_view operation, const absl::Status& thrown, absl::Duration timeout);

  void Abort(absl::string_view reason);

  // See ProcessGroup.
  void AwaitReaders();

  // Ends the group without Shutdown: informs the others, interrupts pending operations, and releases everything.
  void Leave();

  // Releases connections and threads. A healthy NCCL backend first completes the operations that are enqueued, and
  // returns their error.
  absl::Status Release(bool healthy);

  // Registers a subgroup. Error: this group has failed in the meantime; `subgroup` is then aborted.
  absl::Status AddSubgroup(const std::shared_ptr<ProcessGroup>& subgroup);
  std::vector<std::shared_ptr<ProcessGroup>> Subgroups();

 private:
  absl::Status FormInside(c10::intrusive_ptr<c10d::Store> fresh_store, const std::string& unique_name);
  absl::Status ConnectGloo();
  absl::Status ResolveDevice(const BackendChoice& choice);
  void MakeGroup(const BackendChoice& choice, bool checked, const std::string& unique_name);

  FailureReport Describe(absl::string_view operation, const absl::Status& thrown);
  uint64_t Sequence();

  // Breaks all connections. Gloo's break at once; NCCL's abort, which may take long, is one of the `aborting` calls, so
  // that neither other groups nor the report wait for it.
  void CutOff(BackgroundCalls& aborting);
  // Calls CutOff for this group and its subgroups, which then fail with Aborted and `reason`. Returns the groups'
  // boards, for their reports.
  std::vector<std::shared_ptr<FailureBoard>> AbortAll(absl::string_view reason, BackgroundCalls& aborting);

  std::stop_source aborted_;  // ends waits for the store inside NCCL
  Mutex mutex_;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);    // why the group is unusable
  std::set<int> gone_ ABSL_GUARDED_BY(mutex_);     // ranks without a failure report: do not wait for them
  bool released_ ABSL_GUARDED_BY(mutex_) = false;  // no connections are left
  std::vector<std::weak_ptr<ProcessGroup>> subgroups_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_PROCESS_GROUP_IMPL_H_
