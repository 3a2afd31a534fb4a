#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_PROCESS_GROUP_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_PROCESS_GROUP_H_

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker_runtime/env/worker_env.h"

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace ddprun {

enum class ReduceOp { kSum, kAverage, kMin, kMax, kProduct };

struct ProcessGroupOptions {
  // "gloo", "nccl", "nccl2", or one per device as in "cpu:gloo,cuda:nccl": see backend_choice.h. Empty: chosen by
  // `device`.
  std::string backend = "";

  // Device of this rank's tensors, used to choose the backend if `backend` is empty, and by operations that create
  // tensors of their own. Tensors of other devices can be sent as well (a model on several GPUs) if all ranks send from
  // the same number of devices. A CUDA device without an index gets the local rank as its index; CreateWithStore
  // requires an index.
  c10::Device device = c10::Device(c10::DeviceType::CPU);

  // Timeout of each operation, and of the rendezvous at creation.
  absl::Duration timeout = absl::Minutes(30);

  // Number of this attempt to create the group, for callers that count attempts across all ranks: a rank whose earlier
  // attempts failed can then meet a rank that makes its first. Must be the same on all ranks, and new in this round.
  // Not set: the number of groups that this process has created in this round. Ignored by CreateWithStore and
  // NewSubgroup, which use the name.
  std::optional<uint64_t> attempt = std::nullopt;

  // Cancels the creation when a stop is requested, from any thread: creation then fails with Cancelled within a second.
  // A later stop ends only waits for the group's store.
  std::stop_token cancel = {};

  // If true, a rank that loses a peer waits up to a second for the reports of others, so that its error names the first
  // cause. Not needed where the launcher names the cause, as for an elastic worker, whose next round would be delayed.
  // After a timeout the rank always waits, so that ranks that are only slightly late are not blamed.
  bool await_failure_reports = true;

  // Interface name, or address of this host, on which Gloo listens. Empty: the first interface in GLOO_SOCKET_IFNAME (a
  // comma-separated list) that this host has, else the source address of the route to MASTER_ADDR.
  std::string interface = "";
};

// A group of ranks that communicate: a c10d::ProcessGroup without Python, with errors that name ranks and hosts.
//
// Every operation is collective: all ranks must call the same operations in the same order. Operations block until this
// rank is done with the tensor (NCCL: until the operation is enqueued on the current stream; see torch.distributed's
// notes on CUDA semantics).
//
// Errors of operations name the rank, the operation and, if known, the peer and its host:
//   DeadlineExceeded   the timeout expired; names the ranks that did not enter the collective
//   Unavailable        a peer died or closed its connections, or the store is lost
//   Aborted            Abort was called on this rank
//   InvalidArgument    a tensor that the backend does not support
//   FailedPrecondition the backend is not available (NCCL without a GPU, or without its plugin library)
//   Internal           any other exception from c10d
// After any error except InvalidArgument the group is unusable: abort or destroy it, and create a new one.
//
// Tensors whose sizes differ between ranks are not always detected: Gloo may end the process (std::terminate in one of
// its threads; RunWorker then reports the reason), or return wrong numbers. With TORCH_DISTRIBUTED_DEBUG=DETAIL, every
// collective first compares operation, shape and dtype between the ranks, at the cost of another exchange.
//
// Threads: use a group from one thread at a time. Abort may be called from any thread.
//
// The first group of a process makes it ignore SIGPIPE, unless a handler is set, so that writing to a closed socket is
// reported as an error instead of ending the process.
class ProcessGroup : public std::enable_shared_from_this<ProcessGroup> {
 public:
  // Meets the other ranks through the store at MASTER_ADDR:MASTER_PORT, and connects to them. Rank 0 hosts the store if
  // no launcher does. A world of one needs no address. Can be called again after a failure or in a new round: each call
  // in a process uses new keys, so all ranks must make the same sequence of calls, or pass the same `options.attempt`.
  // Waits up to `options.timeout` for the others; the error names the ranks that did not join.
  // Errors in addition to those of operations: Cancelled by `options.cancel`.
  static absl::StatusOr<std::shared_ptr<ProcessGroup>> Create(const WorkerEnv& env, ProcessGroupOptions options = {});

  // Like Create, with a store that the ranks already share. `name` must not have been used in that store.
  static absl::StatusOr<std::shared_ptr<ProcessGroup>> CreateWithStore(c10::intrusive_ptr<c10d::Store> store,
                                                                       const std::string& name, int rank, int size,
                                                                       ProcessGroupOptions options = {});

  // Aborts the group without waiting for other ranks, unless Shutdown was called.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const;
  int size() const;
  const std::string& name() const;
  const std::string& backend() const;  // the notation of ProcessGroupOptions, resolved
  absl::Duration timeout() const;
  // The CPU if a backend handles CPU tensors, else this rank's GPU: the device of tensors that are created for this
  // group's operations. The model's device is `device` of the options.
  c10::Device device() const;
  // This rank's GPU, if it has one and NCCL handles CUDA tensors: tensors there go from GPU to GPU. Equal on all
  // ranks, except for the index.
  std::optional<c10::Device> nccl_device() const;

  // Collective: creates NCCL's communicator of nccl_device() now, and not in the first operation that needs it;
  // ProcessGroupOptions::cancel ends it at once, which leaves a thread behind until NCCL gives up. Does nothing without
  // that device. Call it only if the ranks' CUDA tensors are all on that device: LibTorch pairs the communicators of
  // several GPUs in the order in which each rank creates them.
  absl::Status ConnectNccl();

  // Creates a group of some of this group's ranks (ascending, each at most once). Every rank of this group must call it
  // with the same arguments; ranks that are not in `ranks` get nullptr. Default options: those of this group.
  absl::StatusOr<std::shared_ptr<ProcessGroup>> NewSubgroup(absl::Span<const int> ranks, const std::string& name,
                                                            std::optional<ProcessGroupOptions> options = std::nullopt);

  // Waits until all ranks have entered the barrier. The error names the ranks that did not within `timeout` (default:
  // the group's timeout).
  absl::Status Barrier(std::optional<absl::Duration> timeout = std::nullopt);

  // Reduces in place. Tensors have equal shape and dtype on all ranks. kAverage requires a floating-point dtype.
  absl::Status AllReduce(at::Tensor tensor, ReduceOp op = ReduceOp::kSum);
  // Copies in place, from `root`. Tensors have equal shape and dtype on all ranks.
  absl::Status Broadcast(at::Tensor tensor, int root = 0);
  // Returns one tensor per rank, in rank order, each of the shape, dtype and device of `tensor`.
  absl::StatusOr<std::vector<at::Tensor>> AllGather(const at::Tensor& tensor);
  // Returns root's `text` on all ranks. The argument is ignored on other ranks. At most 64 MiB.
  absl::StatusOr<std::string> BroadcastText(std::string text, int root = 0);

  // Runs `body` (plain LibTorch code: forward, backward, collectives on c10d()) and converts exceptions into the errors
  // above, with `operation` in the message.
  absl::Status Try(absl::string_view operation, absl::FunctionRef<absl::Status()> body);

  // Returns the status that Try would have returned for `thrown`, in code that catches exceptions itself with TorchTry.
  absl::Status Explain(absl::string_view operation, const absl::Status& thrown);

  // Returns OK, or the reason why the group is unusable: it was aborted, it failed, or NCCL has failed in a collective
  // that was enqueued earlier, which leaves garbage in its tensors. Takes a microsecond and does not block. A result is
  // valid if it has left the GPU (item(), a copy to the host) and Health is OK afterwards, so check before a step is
  // committed and before a checkpoint is sealed. Try and DistributedDataParallel's forward check it too. Errors: as for
  // operations.
  absl::Status Health();

  // Makes every operation of this group and its subgroups that is in progress return at once. From then on all
  // operations fail with Aborted and `reason`. Then notifies the other ranks, which may take a minute if the store
  // can't be reached, and ten seconds if its process is stopped. May be called from any thread, and more than once.
  void Abort(absl::string_view reason);

  // Call it in a process that is about to exit after a failure. If it hosts the store, waits up to a second until the
  // other ranks have read the failure reports. RunWorker calls it.
  void AwaitReaders();

  // Orderly shutdown: a barrier with the group's timeout, so that no rank leaves while another still needs it (a rank
  // may be late, for example because it exports the model), then subgroups, connections and threads. Returns the
  // barrier's error, at once if a rank died; everything is released in any case.
  absl::Status Shutdown();

  // Gives access to operations that this class does not offer. Never null before Shutdown. Its functions throw: call
  // them inside Try.
  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d() const;
  // Key-value store of this group.
  const c10::intrusive_ptr<c10d::Store>& store() const;

 private:
  class Impl;
  explicit ProcessGroup(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_PROCESS_GROUP_H_
