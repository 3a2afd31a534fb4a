#ifndef DDPRUN_WORKER_RUNTIME_DDP_JOIN_H_
#define DDPRUN_WORKER_RUNTIME_DDP_JOIN_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "worker_runtime/ddp/join_options.h"

namespace ddprun {

struct DdpState;

// Supports uneven inputs, like Python's join: a rank whose `loop` has returned shadows the collectives of the ranks
// that still train, with zeros as gradients, until all have finished. Then all get the last one's model. See
// DistributedDataParallel.
absl::Status RunJoin(DdpState& state, const JoinOptions& options, absl::FunctionRef<absl::Status()> loop);

// Called by forward while RunJoin is active, so that ranks that have finished can follow. Throw like LibTorch.
void JoinNotifyForward(DdpState& state);         // before all other collectives of the forward
int JoinRankOfBuffers(DdpState& state);          // returns a rank that still trains
void JoinAnnounceGradientSync(DdpState& state);  // after all others

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_JOIN_H_
