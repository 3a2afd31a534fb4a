#include "worker_runtime/ddp/all_reduce_speed.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "absl/time/time.h"
#include "base/steady_time.h"
#include "worker_runtime/process_group/collectives.h"

namespace ddprun {
namespace {

constexpr int kSmallRounds = 25;  // more rounds, as these times vary more: woken threads may wait for a core
constexpr int kLargeRounds = 5;
constexpr int64_t kMinBytes = 64 * 1024;
constexpr int64_t kMaxBytes = 4 * 1024 * 1024;

// Returns the median time in seconds on the slowest rank.
absl::StatusOr<double> Measure(ProcessGroup& group, c10::Device device, int64_t elements, int rounds) {
  std::vector<double> seconds(rounds);
  absl::Status status = group.Try("measuring the all-reduce", [&]() -> absl::Status {
    const at::Tensor tensor = at::zeros({elements}, at::TensorOptions().device(device));
    // The first one sets up connections.
    for (int round = -1; round < rounds; ++round) {
      const SteadyTime began = SteadyNow();
      std::vector<at::Tensor> tensors = {tensor};
      const c10::intrusive_ptr<c10d::Work> work = group.c10d()->allreduce(tensors);
      // Spins: in backward this thread computes meanwhile, and the backend's threads need a core in addition.
      while (!work->isCompleted()) {
      }
      work->wait();
      if (round >= 0) seconds[round] = absl::ToDoubleSeconds(SteadyNow() - began);
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  std::sort(seconds.begin(), seconds.end());
  return AllReduceValue(group, seconds[rounds / 2], ReduceOp::kMax);
}

}  // namespace

absl::StatusOr<AllReduceSpeed> MeasureAllReduce(ProcessGroup& group, c10::Device device, int64_t bytes) {
  const absl::StatusOr<double> latency = Measure(group, device, 1, kSmallRounds);
  if (!latency.ok()) return latency.status();
  const int64_t elements = std::clamp(bytes, kMinBytes, kMaxBytes) / static_cast<int64_t>(sizeof(float));
  const absl::StatusOr<double> large = Measure(group, device, elements, kLargeRounds);
  if (!large.ok()) return large.status();
  // On a fast link, one element may take as long.
  const double transfer = std::max(*large - *latency, 1e-6);
  return AllReduceSpeed{absl::Seconds(*latency), static_cast<double>(elements * sizeof(float)) / transfer};
}

}  // namespace ddprun
