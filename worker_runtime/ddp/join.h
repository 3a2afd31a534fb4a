#ifndef DDPRUN_WORKER_RUNTIME_DDP_JOIN_H_
#define DDPRUN_WORKER_RUNTIME_DDP_JOIN_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "worker_runtime/ddp/join_options.h"

namespace ddprun {

struct DdpState;

// Uneven inputs, as Python's join: a rank whose `loop` is over goes on in the collectives of those that still train,
// with zeros for gradients, until all are done; then all take the model of the last one. See DistributedDataParallel.
absl::Status RunJoin(DdpState& state, const JoinOptions& options, absl::FunctionRef<absl::Status()> loop);

// What a forward does while a RunJoin is under way, so that ranks that are done can follow. Throw as LibTorch.
void JoinNotifyForward(DdpState& state);         // before all other collectives of the forward
int JoinRankOfBuffers(DdpState& state);          // a rank that still trains
void JoinAnnounceGradientSync(DdpState& state);  // after all others

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_JOIN_H_
