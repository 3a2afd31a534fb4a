#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_PROCESS_GROUP_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_PROCESS_GROUP_H_

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <optional>
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
  // "gloo", "nccl", or one per device as in "cpu:gloo,cuda:nccl". Empty: the one that fits `device`.
  std::string backend = "";

  // Where this rank's tensors live: "cpu", or a CUDA device, which NCCL binds to. Used where `backend` is empty, and by
  // NCCL. With a bare CUDA type the index is the local rank.
  c10::Device device = c10::Device(c10::DeviceType::CPU);

  // How long one operation, and the meeting at creation, may take.
  absl::Duration timeout = absl::Minutes(30);

  // Name of the interface, or an address of this host, that Gloo listens on. Empty: GLOO_SOCKET_IFNAME if set, else the
  // address from which MASTER_ADDR is reached.
  std::string interface = "";
};

// A set of ranks that talk to each other: a c10d::ProcessGroup made without Python, with errors that say who and where.
//
// Every operation is collective: all ranks call the same ones in the same order. Operations block until this rank is
// done with the tensor (NCCL: until it is enqueued on the current stream; see torch.distributed's notes on CUDA
// semantics).
//
// Errors of operations, which name the rank, the operation and, where it can be found out, the peer with its host:
//   DeadlineExceeded   not done within the timeout; names the ranks that did not come to it
//   Unavailable        a peer is gone (died, or closed its connections), or the store is
//   Aborted            Abort was called here
//   InvalidArgument    a tensor that the backend can't take
//   FailedPrecondition no such backend here (NCCL without a GPU, or without the library that knows it)
//   Internal           anything else that c10d threw
// After an error (but InvalidArgument) the group is of no more use: Abort or destroy it, and make another.
//
// A tensor whose size differs among the ranks is not always seen: Gloo may end the process (std::terminate, in a thread
// of its own; RunWorker then says why), or deliver wrong numbers. With TORCH_DISTRIBUTED_DEBUG=DETAIL every collective
// first compares operation, shape and dtype among the ranks, at the cost of a further exchange.
//
// Threads: one thread at a time uses a group, but Abort may be called from any.
//
// The first group of a process lets it ignore SIGPIPE, unless a handler is set: sockets whose peer is gone are an error
// to be told, and not the end.
class ProcessGroup : public std::enable_shared_from_this<ProcessGroup> {
 public:
  // Meets the other ranks in the store at MASTER_ADDR:MASTER_PORT and connects to them. Hosts that store itself if it
  // is rank 0 and no launcher does. A world of one needs no address. May be called again after a failure or in a new
  // round: every call of one process uses fresh keys, so all ranks must make the same calls. Waits at most
  // `options.timeout` for the others; the error names those that have not come. Until then it can't be aborted, other
  // than by ending the store.
  static absl::StatusOr<std::shared_ptr<ProcessGroup>> Create(const WorkerEnv& env, ProcessGroupOptions options = {});

  // The same with a store that the ranks share already. `name` must be new in that store.
  static absl::StatusOr<std::shared_ptr<ProcessGroup>> CreateWithStore(c10::intrusive_ptr<c10d::Store> store,
                                                                       const std::string& name, int rank, int size,
                                                                       ProcessGroupOptions options = {});

  // Shuts down what Shutdown has not, without waiting for anybody: as Abort.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const;
  int size() const;
  const std::string& name() const;
  const std::string& backend() const;  // as in ProcessGroupOptions, resolved
  absl::Duration timeout() const;

  // A group of some of this group's ranks (ascending, each at most once). Every rank of this group calls it with the
  // same arguments, also those not in `ranks`, which get nullptr. Default options: this group's own.
  absl::StatusOr<std::shared_ptr<ProcessGroup>> NewSubgroup(absl::Span<const int> ranks, const std::string& name,
                                                            std::optional<ProcessGroupOptions> options = std::nullopt);

  // Waits until all ranks are here. The error names the ranks that did not come within `timeout` (default: the
  // group's).
  absl::Status Barrier(std::optional<absl::Duration> timeout = std::nullopt);

  // In place, any shape; the same shape and dtype on all ranks. kAverage is for floating dtypes.
  absl::Status AllReduce(at::Tensor tensor, ReduceOp op = ReduceOp::kSum);
  // In place from `root`; same shape and dtype on all ranks.
  absl::Status Broadcast(at::Tensor tensor, int root = 0);
  // One tensor per rank in rank order, each like `tensor`.
  absl::StatusOr<std::vector<at::Tensor>> AllGather(const at::Tensor& tensor);
  // `text` of root on all ranks; on others the argument is not looked at. At most 64 MiB.
  absl::StatusOr<std::string> BroadcastText(std::string text, int root = 0);

  // The wall between LibTorch's exceptions and absl::Status: runs `body` (plain LibTorch code: forward, backward, own
  // collectives on c10d()) and turns what it throws into an error as above, with `operation` in its text.
  absl::Status Try(absl::string_view operation, absl::FunctionRef<absl::Status()> body);

  // For code that has a wall of its own: what Try would have returned for an exception of which TorchTry made `thrown`.
  absl::Status Explain(absl::string_view operation, const absl::Status& thrown);

  // Gets every thread that is stuck in an operation of this group, or of a subgroup, out at once. From then on all fail
  // with Aborted and `reason`. May be called from any thread, several times.
  void Abort(absl::string_view reason);

  // For a process that is about to end after a failure: if it hosts the store, waits for a moment (a second at most)
  // until the other ranks have read there what has failed. RunWorker does it.
  void AwaitReaders();

  // The ordered end: subgroups first, a barrier so that no rank leaves while another still needs it, then connections
  // and threads. The error is the barrier's; all is released in any case.
  absl::Status Shutdown();

  // For the operations that are not offered here. Never null before Shutdown. Its exceptions belong in Try.
  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d() const;
  // A key-value store of this group's own.
  const c10::intrusive_ptr<c10d::Store>& store() const;

 private:
  class Impl;
  explicit ProcessGroup(std::unique_ptr<Impl> impl);

  // Where a tensor must lie that one of the backends can move.
  c10::Device DeviceForText() const;

  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_PROCESS_GROUP_H_
