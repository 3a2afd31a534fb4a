// A rank of DdpGpuTest.TwoRanksOnOneGpu, a process: threads of one process would share autograd's thread of the device,
// where each rank's backward waits for the other's.
//   sharing_rank DEVICE BACKEND
// trains; rank 0 prints "loss L" in each step. With an NCCL_HOSTID of its own, NCCL lets it share the GPU.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <stdio.h>
#include <stdlib.h>
#include <torch/utils.h>

#include <memory>

#include "base/status_macros.h"
#include "tests/gpu/halves.h"
#include "worker_runtime/base/parameters.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/extras/optim.h"
#include "worker_runtime/worker.h"

namespace ddprun {
namespace {

constexpr int kSteps = 8;

absl::Status Train(Worker& worker) {
  DDPRUN_RETURN_IF_ERROR(worker.InitProcessGroup());
  const c10::Device device = worker.device();
  auto module = std::make_shared<testing::Halves>(device, device);
  {
    torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : module->parameters()) {
      parameter.copy_((at::arange(parameter.numel()) * 37 % 101).view(parameter.sizes()).to(at::kFloat) / 303);
    }
  }
  DDPRUN_ASSIGN_OR_RETURN(auto ddp, MakeDistributedDataParallel(module, worker.group()));
  AdamW optimizer(Parameters(module), torch::optim::AdamWOptions(1e-2));
  const at::Tensor x = ((at::arange(8 * 16) + 5 * worker.env().rank).view({8, 16}) % 11).to(at::kFloat) / 11;
  for (int step = 0; step < kSteps; ++step) {
    at::Tensor loss = ddp->forward(x).square().mean();
    ddp->zero_grad();
    loss.backward();
    optimizer.step();
    DDPRUN_ASSIGN_OR_RETURN(const double mean, LossAveragedOverRanks(loss, *worker.group()));
    if (worker.env().rank == 0) printf("loss %.9g\n", mean);
  }
  at::Tensor sum = at::full({4}, worker.env().rank + 1.0, at::TensorOptions().device(device).dtype(at::kBFloat16));
  DDPRUN_RETURN_IF_ERROR(worker.group()->AllReduce(sum));
  if (sum[3].item<double>() != 3) return absl::InternalError("the sum of bfloat16 tensors is wrong");
  for (const at::Tensor& parameter : module->parameters()) {
    DDPRUN_ASSIGN_OR_RETURN(const auto all, worker.group()->AllGather(parameter.detach()));
    if (!at::equal(all[0], all[1])) return absl::InternalError("the ranks' parameters differ");
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace ddprun

int main(int, char** argv) {
  const char* const rank = getenv("RANK");
  if (rank != nullptr) setenv("NCCL_HOSTID", rank, 1);
  ddprun::RunWorker({.device = argv[1], .backend = argv[2], .timeout = absl::Minutes(1)}, ddprun::Train);
}
