#ifndef DDPRUN_WORKER_RUNTIME_DDP_POWER_SGD_H_
#define DDPRUN_WORKER_RUNTIME_DDP_POWER_SGD_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/ddp/comm_hook.h"

namespace ddprun {

// The arguments of Python's PowerSGDState, with the same names and defaults. Must be equal on all ranks.
struct PowerSgdOptions {
  // Rank of the factors: a gradient of n x m elements is sent as (n + m) x rank. Typically 1 to 4.
  int64_t matrix_approximation_rank = 1;
  // Iterations that all-reduce without compression, at the start of training. At least 2 if use_error_feedback or
  // warm_start, because buckets are rebuilt after the first.
  int64_t start_power_sgd_iter = 1000;
  // A gradient is compressed if that makes it smaller by more than this factor.
  double min_compression_rate = 2;
  // Add the compression error to the gradients of the next iteration. Costs the memory of two sets of gradients.
  bool use_error_feedback = true;
  // Start from the factors of the previous iteration instead of random numbers.
  bool warm_start = true;
  // Added to the norm of each column: a small value such as 1e-8 prevents a division by zero if a layer's gradients can
  // all be zero.
  double orthogonalization_epsilon = 0;
  uint32_t random_seed = 0;
};

// PowerSGD (Vogels et al., PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization, 2019): sends
// the gradient M of a layer as two thin matrices, P = orthogonalized M Q and Q = M^T P, each averaged over the ranks,
// and trains with P Q^T. Like Python's powerSGD_hook, with the same bits.
//
//   auto power_sgd = ddprun::PowerSgd::Create({.matrix_approximation_rank = 2});
//   if (!power_sgd.ok()) return power_sgd.status();
//   if (absl::Status status = (*ddp)->RegisterCommHook((*power_sgd)->Hook()); !status.ok()) return status;
//
// Useful where the network is slow and layers are large: the factors are computed and sent on the thread that runs
// backward, bucket by bucket. Biases and other vectors are sent uncompressed. The state is not part of a checkpoint: a
// resumed job begins with start_power_sgd_iter iterations without compression.
//
// One object per DistributedDataParallel. Threads: the thread that calls the hook.
class PowerSgd : public std::enable_shared_from_this<PowerSgd> {
 public:
  // Errors: InvalidArgument names the option.
  static absl::StatusOr<std::shared_ptr<PowerSgd>> Create(const PowerSgdOptions& options = {});

  // For RegisterCommHook. Keeps this object alive.
  CommHook Hook();

  // Bytes of the gradients since compression began, and of the data that was all-reduced in their place.
  struct Stats {
    int64_t bytes_before = 0;
    int64_t bytes_after = 0;
  };
  const Stats& compression_stats() const { return stats_; }

 private:
  // State of a bucket that is kept between iterations.
  struct Memory {
    at::Tensor error;  // undefined: none yet
    at::Tensor p, q;   // the factors of all compressed gradients, flat; undefined: none yet
  };

  explicit PowerSgd(const PowerSgdOptions& options) : options_(options), random_(options.random_seed) {}

  absl::Status Reduce(const GradBucket& bucket, ProcessGroup& group);
  absl::Status AllReduce(const at::Tensor& tensor, ProcessGroup& group);
  bool ShouldCompress(const at::Tensor& gradient) const;
  int64_t RankOf(const at::Tensor& matrix) const;
  // Returns views of `flat`, one for each of `matrices` ([1, n, m]): [1, size of its dimension `dim`, rank].
  std::vector<at::Tensor> Factors(const at::Tensor& flat, const std::vector<at::Tensor>& matrices, int dim) const;
  uint64_t NextSeed();

  const PowerSgdOptions options_;
  std::mt19937 random_;
  int64_t iteration_ = 0;
  std::unordered_map<size_t, Memory> memory_;
  Stats stats_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_POWER_SGD_H_
