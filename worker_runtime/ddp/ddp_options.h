#ifndef DDPRUN_WORKER_RUNTIME_DDP_DDP_OPTIONS_H_
#define DDPRUN_WORKER_RUNTIME_DDP_DDP_OPTIONS_H_

#include <cstddef>
#include <optional>
#include <vector>

namespace ddprun {

// Which parameters travel together: a list of buckets in the order in which they are reduced, each a list of indices
// into the parameters that need a gradient, in the order of named_parameters().
using BucketLayout = std::vector<std::vector<size_t>>;

// The arguments of Python's DistributedDataParallel, with the same names and defaults. All ranks must give the same.
struct DdpOptions {
  // Buffers (BatchNorm's running mean, say) are set to rank 0's before every forward that follows a synchronised one.
  bool broadcast_buffers = true;

  // Whether creation compares the model over the ranks and sets parameters and buffers to rank 0's. Off only if the
  // caller has seen to it, as after a recovery that sent the state already.
  bool init_sync = true;

  // Gradients are collected in buckets of about this many MiB; a bucket is reduced while the backward pass still fills
  // the next. Not set: 25 MiB, but the first bucket 1 MiB so that reducing begins early. 25 is therefore not the same as
  // not set, here and in Python. Smaller buckets overlap better on slow links and cost a few per cent on fast ones.
  std::optional<double> bucket_cap_mb = std::nullopt;

  // For models in which a forward does not use every parameter: walks the graph from the outputs in every iteration to
  // find those that will get no gradient. Costs time; without it such a model is an error in the next forward.
  bool find_unused_parameters = false;

  // Gradients become views into the buckets, which saves a copy and the memory of one. zero_grad of the wrapper and of
  // ddprun::AdamW work with it; torch::optim::Optimizer::zero_grad does not.
  bool gradient_as_bucket_view = false;

  // The promise that every iteration uses the same parameters the same number of times: unused parameters are found once,
  // in the first iteration. Allows activation checkpointing, and is faster than find_unused_parameters.
  bool static_graph = false;

  // A layout read by bucket_layout() from a run that is to be continued with the same bits: from three ranks on the order
  // in which gradients are added depends on where in a bucket they lie. Not set: as Python does.
  std::optional<BucketLayout> initial_bucket_layout = std::nullopt;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_DDP_OPTIONS_H_
