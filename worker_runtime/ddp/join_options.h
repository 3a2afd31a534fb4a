#ifndef DDPRUN_WORKER_RUNTIME_DDP_JOIN_OPTIONS_H_
#define DDPRUN_WORKER_RUNTIME_DDP_JOIN_OPTIONS_H_

namespace ddprun {

// The arguments of Python's DistributedDataParallel.join, with the same names and defaults. All ranks must give the same.
struct JoinOptions {
  // Gradients are divided by the number of all ranks, so that each sample counts the same; else by the number of ranks
  // that still have inputs. Communication hooks always divide by all.
  bool divide_by_initial_world_size = true;
  // All ranks stop with an error as soon as one has no inputs left, instead of going on without it.
  bool throw_on_early_termination = false;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_JOIN_OPTIONS_H_
