#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_INTERRUPTIBLE_BACKEND_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_INTERRUPTIBLE_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "absl/functional/function_ref.h"

namespace ddprun {

// A c10d backend that wraps Gloo's and ends operations when they are interrupted or a peer is lost, even where Gloo
// does not: when a connection breaks in the middle of a message, Gloo closes it without waking the operation, which
// then waits until its timeout. Works and futures of this class end with an error, which releases the threads,
// callbacks and DDP Reducers that wait for them. Gloo's operation is left behind with its tensors; the destructor hands
// Gloo's backend with its threads and such operations to a thread that ends when the last one has timed out.
//
// Results are bit-identical to Gloo's. An operation costs one more future and a map entry (about a microsecond).
// Threads: same rules as ProcessGroupGloo; Interrupt may be called from any thread. The first operation starts a
// thread, which checks the connections while an operation takes longer than OperationWatch::kBetweenLooks.
class InterruptibleBackend : public c10d::Backend {
 public:
  // Current state of the backend's connections.
  struct Connections {
    std::vector<std::string> lost;  // remote addresses of closed connections: "[10.0.0.7]:29500"
    int open = 0;
    uint64_t bytes = 0;  // moved on the open ones
  };
  using Look = std::function<Connections()>;

  // `look` may be called from another thread until this object is destroyed.
  InterruptibleBackend(c10::intrusive_ptr<c10d::Backend> gloo, Look look);
  ~InterruptibleBackend() override;

  // To be called after the connections were broken. Operations that have not ended OperationWatch::kGrace later end
  // with an error that contains `why`. Does not wait for that. Later operations throw the error at once.
  void Interrupt(const std::string& why);

  const std::string getBackendName() const override { return gloo_->getBackendName(); }
  c10::intrusive_ptr<Options> getBackendOptions() override { return gloo_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override { gloo_->setTimeout(timeout); }
  void setSequenceNumberForGroup() override { gloo_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return gloo_->getSequenceNumberForGroup(); }
  void enableCollectivesTiming() override { gloo_->enableCollectivesTiming(); }
  void setGroupUid(const std::string& uid) override;
  // Not interruptible: blocks this thread inside Gloo. Its messages are too short to break in the middle.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<Tensors>;
  using Started = c10::intrusive_ptr<c10d::Work>;
  Started broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Started allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Started allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Started allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  Started reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Started allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Started _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  Started allgather_coalesced(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Started allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  Started gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Started scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) override;
  Started reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& options) override;
  Started _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  Started reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  Started alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_counts,
                        std::vector<int64_t>& input_counts, const c10d::AllToAllOptions& options) override;
  Started alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  Started barrier(const c10d::BarrierOptions& options) override;
  Started send(Tensors& tensors, int to, int tag) override;
  Started recv(Tensors& tensors, int from, int tag) override;
  Started recvAnysource(Tensors& tensors, int tag) override;

 private:
  class InFlight;
  class Operation;
  class Collective;
  class Message;

  using Start = absl::FunctionRef<Started()>;
  Started StartCollective(Start start);
  Started StartMessage(Start start);

  c10::intrusive_ptr<c10d::Backend> gloo_;
  const std::shared_ptr<InFlight> in_flight_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_INTERRUPTIBLE_BACKEND_H_
