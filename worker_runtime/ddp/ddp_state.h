#ifndef DDPRUN_WORKER_RUNTIME_DDP_DDP_STATE_H_
#define DDPRUN_WORKER_RUNTIME_DDP_DDP_STATE_H_

#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <vector>

#include "worker_runtime/ddp/forward_check.h"
#include "worker_runtime/ddp/module_tensors.h"
#include "worker_runtime/ddp/reducer.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// State shared by the parts of a DistributedDataParallel. Internal to this directory.
struct DdpState {
  DdpState() = default;
  DdpState(const DdpState&) = delete;
  DdpState& operator=(const DdpState&) = delete;
  ~DdpState() {
    forward_check.reset();
    // The order matters: the parameters' hooks refer to the reducer, and so does the logger's destructor.
    if (reducer != nullptr) reducer->remove_autograd_hooks();
    logger.reset();
    reducer.reset();
  }

  c10::Device device() const { return trained.tensors.front().device(); }

  std::shared_ptr<torch::nn::Module> module;
  std::shared_ptr<ProcessGroup> group;
  DdpOptions options;
  TrainedParameters trained;
  std::shared_ptr<Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;  // the reducer holds it only weakly
  bool has_buffers = false;              // at creation; the buffers themselves may be replaced
  bool has_hook = false;
  bool require_backward_grad_sync = true;
  bool require_forward_param_sync = true;
  bool delay_all_reduce_queued = false;
  // True if the last forward ran under no_sync: its backward reduces nothing, inside or outside of the guard.
  bool last_forward_was_local = false;
  std::optional<ForwardCheck> forward_check;
  // Time at which each parameter last became ready, as of the end of the last forward. If it is unchanged since, the
  // parameter did not become ready in this backward.
  std::vector<int64_t> ready_times;
};

// Sets all buffers to those of `root`. Collective. Throws like LibTorch.
void BroadcastBuffers(DdpState& state, int root);

// Sets parameters, and buffers if broadcast_buffers is set, to those of `root`. Collective. Throws like LibTorch.
void BroadcastModule(DdpState& state, int root);

// Returns true if the next forward must broadcast the buffers.
inline bool BuffersNeedSync(const DdpState& state) {
  return state.require_forward_param_sync && state.options.broadcast_buffers && state.has_buffers;
}

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_DDP_STATE_H_
