#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "tests/simgpu/features/features.h"
#include "tests/simgpu/features/net.h"
#include "worker_runtime/base/parameters.h"
#include "worker_runtime/ddp/comm_hook.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/extras/amp.h"
#include "worker_runtime/extras/nn.h"
#include "worker_runtime/extras/optim.h"

namespace ddprun::testing {
namespace {

using Ddp = std::shared_ptr<DistributedDataParallel<NetImpl>>;

struct Way {
  std::string name;
  DdpOptions options = {};
  NetOptions net = {};
  int steps = 6;
  bool sync_norm = false;
  bool accumulate = false;  // two backwards per step, the first without communication
  bool skip_layer = false;  // a layer is used by every other rank
  std::optional<at::ScalarType> amp = std::nullopt;
  bool scaler = false;  // and an overflow in step 3
  std::function<CommHook()> hook = nullptr;
};

std::vector<Way> Ways() {
  return {
      {.name = "plain"},
      {.name = "bucket views", .options = {.gradient_as_bucket_view = true}},
      {.name = "small buckets", .options = {.bucket_cap_mb = 0.001}},
      {.name = "measured buckets", .options = {.measure_bucket_cap = true}},
      {.name = "static graph", .options = {.static_graph = true}, .net = {.use_all_parameters = false}},
      {.name = "unused parameters",
       .options = {.find_unused_parameters = true},
       .net = {.use_all_parameters = false},
       .skip_layer = true},
      {.name = "no_sync", .accumulate = true},
      {.name = "BatchNorm", .net = {.batch_norm = true}},
      {.name = "SyncBatchNorm", .sync_norm = true},
      {.name = "bfloat16", .amp = at::kBFloat16},
      {.name = "float16 with scaler", .amp = at::kHalf, .scaler = true},
      {.name = "scaler", .scaler = true},
      {.name = "fp16 hook", .hook = [] { return Fp16CompressHook(); }},
      {.name = "bf16 hook", .hook = [] { return Bf16CompressHook(); }},
  };
}

class Training {
 public:
  Training(Worker& worker, const Way& way)
      : worker_(worker), way_(way), scaler_({.init_scale = 1024, .growth_interval = 2, .enabled = way.scaler}) {}

  absl::Status Run() {
    torch::manual_seed(7);
    NetOptions options = way_.net;
    if (way_.sync_norm) options.sync_batch_norm = worker_.group();
    net_ = Net(options);
    net_->to(worker_.device());
    DDPRUN_ASSIGN_OR_RETURN(ddp_, MakeDistributedDataParallel(net_, worker_.group(), way_.options));
    if (way_.hook) DDPRUN_RETURN_IF_ERROR(ddp_->RegisterCommHook(way_.hook()));
    optimizer_ = std::make_unique<AdamW>(Parameters(net_), torch::optim::AdamWOptions(1e-2));
    DDPRUN_RETURN_IF_ERROR(MakeSteps());
    printf("%s rank %d: sum %.6f loss %.6f norm %.5f skipped %d scale %g\n", way_.name.c_str(), worker_.env().rank,
           Sum(*net_), loss_, norm_, skipped_, way_.scaler ? scaler_.scale() : 0);
    return absl::OkStatus();
  }

 private:
  at::Tensor Forward(int step) {
    std::optional<Autocast> autocast;
    if (way_.amp.has_value()) autocast.emplace(worker_.device().type(), *way_.amp);
    const bool use_second = !way_.skip_layer || (step + worker_.env().rank) % 2 == 0;
    const at::Tensor out = ddp_->forward(Data(worker_, step, 6, 8), use_second).to(at::kFloat);
    return at::mse_loss(out, Data(worker_, step + 500, 6, 4));
  }

  absl::Status MakeSteps() {
    for (int step = 0; step < way_.steps; ++step) {
      DDPRUN_RETURN_IF_ERROR(worker_.group()->Try("step", [&] { return Step(step); }));
    }
    return absl::OkStatus();
  }

  absl::Status Step(int step) {
    ddp_->zero_grad();
    if (way_.accumulate) {
      auto guard = ddp_->no_sync();
      Forward(step).backward();
    }
    at::Tensor loss = Forward(step);
    if (way_.scaler && step == 3 && worker_.env().rank == 1) loss = loss * INFINITY;
    scaler_.Scale(loss).backward();
    if (way_.scaler) scaler_.Unscale(*optimizer_);
    const at::Tensor norm = ClipGradNorm(Parameters(net_), 0.5);
    if (!way_.scaler) {
      optimizer_->step();
    } else {
      if (!scaler_.Step(*optimizer_)) ++skipped_;
      scaler_.Update();
    }
    norm_ = norm.item<double>();
    loss_ = loss.item<double>();
    return absl::OkStatus();
  }

  Worker& worker_;
  const Way& way_;
  GradScaler scaler_;
  Net net_{nullptr};
  Ddp ddp_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  double loss_ = 0, norm_ = 0;
  int skipped_ = 0;
};

}  // namespace

absl::Status TrainAllWays(Worker& worker) {
  for (const Way& way : Ways()) {
    DDPRUN_RETURN_IF_ERROR(worker.group()->Try(way.name, [&] { return Training(worker, way).Run(); }));
  }
  return absl::OkStatus();
}

}  // namespace ddprun::testing
