#include "worker_runtime/process_group/collectives.h"

#include <ATen/Functions.h>

#include <cmath>
#include <cstdio>
#include <string>

#include "base/status_macros.h"
#include "tests/simgpu/features/features.h"
#include "tests/simgpu/features/net.h"
#include "worker_runtime/extras/metrics.h"

namespace ddprun::testing {
namespace {

at::Tensor Full(const Worker& worker, double value, int count = 5) {
  return at::full({count}, value, at::TensorOptions().device(worker.device()));
}

absl::Status Expect(bool condition, const std::string& what) {
  return condition ? absl::OkStatus() : absl::InternalError("wrong result of " + what);
}

// The current stream computes while a collective runs.
absl::Status OverlapAllReduce(Worker& worker) {
  const int n = worker.env().world_size;
  at::Tensor tensor = Full(worker, worker.env().rank + 1);
  for (int i = 0; i < 20; ++i) {
    DDPRUN_ASSIGN_OR_RETURN(auto work, AsyncAllReduce(*worker.group(), tensor));
    const at::Tensor other = Full(worker, 3).mul(2);
    DDPRUN_RETURN_IF_ERROR(work.Wait());
    tensor.div_(n);
  }
  return Expect(std::abs(tensor.sum().item<double>() - 5 * (n + 1) / 2.0) < 1e-3, "AsyncAllReduce");
}

absl::Status SendToRankOne(Worker& worker) {
  if (worker.group()->backend() == "cuda:gloo") return absl::OkStatus();  // Gloo sends from the host only
  at::Tensor tensor = Full(worker, worker.env().rank);
  if (worker.env().rank == 0) {
    DDPRUN_ASSIGN_OR_RETURN(auto send, AsyncSend(*worker.group(), tensor, 1));
    return send.Wait();
  }
  if (worker.env().rank != 1) return absl::OkStatus();
  DDPRUN_ASSIGN_OR_RETURN(auto receive, AsyncRecv(*worker.group(), tensor, 0));
  DDPRUN_RETURN_IF_ERROR(receive.Wait());
  return Expect(tensor[0].item<double>() == 0, "AsyncRecv");
}

}  // namespace

absl::Status UseCollectives(Worker& worker) {
  ProcessGroup& group = *worker.group();
  const int n = worker.env().world_size, rank = worker.env().rank;
  DDPRUN_RETURN_IF_ERROR(OverlapAllReduce(worker));
  at::Tensor sent = Full(worker, rank), gathered = Full(worker, 0, 5 * n), scattered = Full(worker, 0, 2);
  DDPRUN_ASSIGN_OR_RETURN(auto broadcast, AsyncBroadcast(group, sent, n - 1));
  DDPRUN_ASSIGN_OR_RETURN(auto gather, AsyncAllGatherIntoTensor(group, gathered, Full(worker, rank)));
  DDPRUN_ASSIGN_OR_RETURN(auto scatter, AsyncReduceScatterTensor(group, scattered, Full(worker, 1, 2 * n)));
  DDPRUN_RETURN_IF_ERROR(broadcast.Wait());
  DDPRUN_RETURN_IF_ERROR(gather.Wait());
  DDPRUN_RETURN_IF_ERROR(scatter.Wait());
  DDPRUN_RETURN_IF_ERROR(Expect(sent[0].item<double>() == n - 1, "AsyncBroadcast"));
  DDPRUN_RETURN_IF_ERROR(Expect(gathered.sum().item<double>() == 5.0 * n * (n - 1) / 2, "AsyncAllGatherIntoTensor"));
  DDPRUN_RETURN_IF_ERROR(Expect(scattered[1].item<double>() == n, "AsyncReduceScatterTensor"));
  DDPRUN_RETURN_IF_ERROR(SendToRankOne(worker));
  {
    DDPRUN_ASSIGN_OR_RETURN(auto dropped, AsyncAllReduce(group, sent));  // never waited for
  }
  DDPRUN_RETURN_IF_ERROR(group.Barrier());
  printf("collectives rank %d: right\n", rank);
  return absl::OkStatus();
}

absl::Status UseMetrics(Worker& worker) {
  const int rank = worker.env().rank;
  Metrics metrics;
  for (int i = 0; i < 3; ++i) {
    metrics.Add("loss", Data(worker, i, 1, 1).squeeze(), 2);
    metrics.Add("host", i + rank);
    metrics.AddSum("tokens", at::full({}, 5, at::TensorOptions().device(worker.device())));
  }
  DDPRUN_ASSIGN_OR_RETURN(auto values, metrics.Reduce(*worker.group()));
  printf("metrics rank %d: loss %.6f host %.3f tokens %g\n", rank, values["loss"], values["host"], values["tokens"]);
  return absl::OkStatus();
}

}  // namespace ddprun::testing
