#ifndef DDPRUN_WORKER_RUNTIME_DDP_DDP_OPTIONS_H_
#define DDPRUN_WORKER_RUNTIME_DDP_DDP_OPTIONS_H_

#include <cstddef>
#include <optional>
#include <vector>

namespace ddprun {

// Assignment of parameters to buckets: a list of buckets in the order in which they are reduced. Each bucket is a list
// of indices into the parameters that require a gradient, in the order of named_parameters().
using BucketLayout = std::vector<std::vector<size_t>>;

// The arguments of Python's DistributedDataParallel, with the same names and defaults. Must be equal on all ranks.
struct DdpOptions {
  // Set buffers (such as BatchNorm's running mean) to rank 0's before every forward that follows a synchronized one.
  bool broadcast_buffers = true;

  // Compare the model between ranks at creation, and set parameters and buffers to rank 0's. Turn off only if the ranks
  // are already equal, for example after a recovery that has broadcast the state.
  bool init_sync = true;

  // Gradients are collected in buckets of about this many MiB; a bucket is reduced while backward fills the next one.
  // Not set: 25 MiB, with a first bucket of 1 MiB so that communication starts early. Setting 25 is therefore not the
  // same as leaving it unset, here and in Python. Smaller buckets overlap better on slow links and cost a few percent
  // on fast ones.
  std::optional<double> bucket_cap_mb = std::nullopt;

  // Choose bucket_cap_mb, which must then be unset, by measuring the group's all-reduce at creation (about 0.2 s on a
  // link of 1 Gbit/s): between 0.25 and 25 MiB, so that neither the latencies of many buckets nor the last bucket,
  // which backward does not hide, cost much. All ranks choose the same value. Another run may choose another value, and
  // with three or more ranks get other bits: DistributedDataParallel::bucket_cap_mb() returns the value to set.
  bool measure_bucket_cap = false;

  // Supports models whose forward does not use every parameter: traverses the graph from the outputs in every iteration
  // to find parameters that will get no gradient. Costs time. Without it, the next forward of such a model fails.
  bool find_unused_parameters = false;

  // Gradients become views into the buckets, which saves a copy and the memory of one. zero_grad of
  // DistributedDataParallel and of ddprun::AdamW support it; torch::optim::Optimizer::zero_grad does not.
  bool gradient_as_bucket_view = false;

  // Promises that every iteration uses the same parameters the same number of times, so unused parameters are found
  // only once, in the first iteration. Supports activation checkpointing, and is faster than find_unused_parameters.
  bool static_graph = false;

  // Average gradients through shared memory instead of the group's all-reduce, if all ranks train on the CPU of one
  // host (in one container, as one user) with floating-point parameters; otherwise it has no effect. A step of a small
  // model takes half of the time. With two ranks the bits are the same, with more they differ
  // (shared_memory_all_reduce.h). Occupies the communication hook: RegisterCommHook then returns an error; compose with
  // SharedMemoryAllReduce::Hook instead.
  bool shared_memory = false;

  // The bucket_layout() of a run that should continue with the same bits: with three or more ranks, the order in which
  // gradients are added depends on their position in a bucket. Not set: as in Python.
  std::optional<BucketLayout> initial_bucket_layout = std::nullopt;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_DDP_OPTIONS_H_
