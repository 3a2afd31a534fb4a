#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_INTERRUPTIBLE_BACKEND_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_INTERRUPTIBLE_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "worker_runtime/process_group/c10d_operations.h"

namespace ddprun {

// Decides when operations that the backend does not end must be ended. Pure; thread-compatible.
//
// Gloo notifies an operation of a broken connection, unless a message is half sent or half received at that moment:
// then the operation waits until its timeout. A lost connection alone proves nothing, because a peer that has finished
// may leave in good order while this rank still receives from others.
class OperationWatch {
 public:
  // How long an operation runs before the first look at the connections, and the time between looks.
  static constexpr absl::Duration kBetweenLooks = absl::Milliseconds(100);
  // How long operations may take to end after their connections were broken on purpose. An operation that ends in this
  // time no longer writes to its tensors.
  static constexpr absl::Duration kGrace = absl::Milliseconds(50);
  // How long no byte may move on the remaining connections after one was lost.
  static constexpr absl::Duration kSilence = absl::Seconds(1);

  struct Sight {
    int lost = 0;             // closed connections
    int open = 0;             // open connections
    uint64_t bytes = 0;       // moved on the open ones, in both directions
    bool one_failed = false;  // an operation has ended with an error since the group was made
  };

  // The connections were broken on purpose. Only the first call counts.
  void Interrupt(SteadyTime now);

  // Resets what was seen, when nothing is in flight.
  void Rest() { silent_since_.reset(); }

  // Returns true if the operations in flight must be ended.
  bool Step(const Sight& sight, SteadyTime now);

  // Returns when to look again while an operation is in flight.
  SteadyTime NextLook(SteadyTime now) const;

 private:
  std::optional<SteadyTime> interrupted_;
  std::optional<SteadyTime> silent_since_;
  uint64_t bytes_ = 0;
};

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

  using Started = c10::intrusive_ptr<c10d::Work>;
#define DDPRUN_FORWARD(kind, name, parameters, arguments)      \
  Started name parameters override {                           \
    return Start##kind([&] { return gloo_->name arguments; }); \
  }
  DDPRUN_FOR_EACH_C10D_OPERATION(DDPRUN_FORWARD)
#undef DDPRUN_FORWARD

 private:
  class InFlight;
  class Operation;
  class Collective;
  class Message;

  using Start = absl::FunctionRef<Started()>;
  // Starts operations one at a time, whatever their groups: LibTorch's flight recorder crashes if several threads do so
  // at once. Gloo only queues them.
  static Started StartAlone(Start start);
  Started StartCollective(Start start);
  Started StartMessage(Start start);

  c10::intrusive_ptr<c10d::Backend> gloo_;
  const std::shared_ptr<InFlight> in_flight_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_INTERRUPTIBLE_BACKEND_H_
