#ifndef DDPRUN_WORKER_RUNTIME_DDP_JOIN_OPTIONS_H_
#define DDPRUN_WORKER_RUNTIME_DDP_JOIN_OPTIONS_H_

namespace ddprun {

// The arguments of Python's DistributedDataParallel.join, with the same names and defaults. Must be equal on all ranks.
struct JoinOptions {
  // true: gradients are divided by the number of all ranks, so that each sample has the same weight; false: by the
  // number of ranks that still have inputs. Communication hooks always divide by the number of all ranks.
  bool divide_by_initial_world_size = true;
  // All ranks fail as soon as one has no inputs left, instead of continuing without it.
  bool throw_on_early_termination = false;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_JOIN_OPTIONS_H_
