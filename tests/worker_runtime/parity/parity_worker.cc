// Trains all runs of a file with C++ and writes what twin.py writes: worker SETTINGS OUTPUT_PREFIX, under the
// launcher's environment variables. A line is "RUN STEP LOSS CHECKSUM", with the bits of the last two in hexadecimal;
// with a GradScaler, the bits of the scale follow.
#include <ATen/ops/mse_loss.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "examples/cpp/gpt/model.h"
#include "tests/worker_runtime/parity/models.h"
#include "tests/worker_runtime/parity/settings.h"
#include "worker_runtime/base/parameters.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/extras/amp.h"
#include "worker_runtime/extras/nn.h"
#include "worker_runtime/extras/optim.h"
#include "worker_runtime/worker.h"

namespace ddprun::testing {
namespace {

constexpr int64_t kVocabulary = Tied::kVocabulary;

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

DdpOptions OptionsOf(const Settings& settings) {
  DdpOptions options;
  if (settings.Has("cap")) options.bucket_cap_mb = settings.Real("cap", 0);
  options.gradient_as_bucket_view = settings.Number("view", 0) == 1;
  options.static_graph = settings.Number("static", 0) == 1;
  options.find_unused_parameters = settings.Number("find", 0) == 1;
  return options;
}

std::vector<torch::optim::OptimizerParamGroup> GroupsOf(const torch::nn::Module& module, double lr) {
  gpt::ParameterGroups groups = gpt::GroupParameters(module);
  const auto options = [lr](double decay) {
    return std::make_unique<torch::optim::AdamWOptions>(torch::optim::AdamWOptions(lr).weight_decay(decay));
  };
  std::vector<torch::optim::OptimizerParamGroup> result;
  result.emplace_back(std::move(groups.decay), options(0.1));
  result.emplace_back(std::move(groups.no_decay), options(0.0));
  return result;
}

std::unique_ptr<torch::optim::Optimizer> OptimizerOf(const Settings& settings, const torch::nn::Module& module) {
  const double lr = settings.Real("lr", 0.01);
  const std::string kind = settings.Text("opt", "sgd");
  const std::vector<at::Tensor> parameters = Parameters(module);
  if (kind == "momentum") {
    return std::make_unique<torch::optim::SGD>(
        parameters, torch::optim::SGDOptions(lr).momentum(0.9).nesterov(true).weight_decay(0.01));
  }
  if (kind == "adam") return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(lr));
  if (kind == "stock_adamw") return std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(lr));
  if (kind == "adamw") {
    const std::string name = settings.Text("kernel", "loop");
    const AdamWKernel kernel = name == "fused"     ? AdamWKernel::kFused
                               : name == "foreach" ? AdamWKernel::kForeach
                                                   : AdamWKernel::kLoop;
    const torch::optim::AdamWOptions defaults = torch::optim::AdamWOptions(lr).amsgrad(settings.Has("amsgrad"));
    if (settings.Number("groups", 0) == 1) return std::make_unique<AdamW>(GroupsOf(module, lr), defaults, kernel);
    return std::make_unique<AdamW>(parameters, defaults, kernel);
  }
  return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(lr));
}

CommHook HookOf(const std::string& name) {
  if (name == "fp16") return Fp16CompressHook();
  if (name == "bf16") return Bf16CompressHook();
  return AllReduceHook();
}

// One run of one model. `loss` runs forward and computes the loss of batch `number`.
template <typename M>
class Run {
 public:
  using Ddp = DistributedDataParallel<M>;
  using Loss = std::function<at::Tensor(Ddp& ddp, int step, int number)>;

  Run(const Settings& settings, Worker& worker, std::ostream& out) : settings_(settings), worker_(worker), out_(out) {}

  absl::Status Train(std::shared_ptr<M> module, const Loss& loss) {
    DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<Ddp> ddp,
                            MakeDistributedDataParallel(module, worker_.group(), OptionsOf(settings_)));
    if (settings_.Has("hook")) DDPRUN_RETURN_IF_ERROR(ddp->RegisterCommHook(HookOf(settings_.Text("hook", ""))));
    std::unique_ptr<torch::optim::Optimizer> optimizer = OptimizerOf(settings_, *module);
    if (settings_.Number("lambda", 0) == 1) {
      scheduler_ = std::make_unique<LambdaLR>(*optimizer, CosineWithWarmup(2, settings_.Number("steps", 6)));
    }
    if (settings_.Has("scaler")) {
      scaler_ = std::make_unique<GradScaler>(GradScalerOptions{.init_scale = settings_.Real("scaler", 0),
                                                               .growth_interval = settings_.Number("growth", 2000)});
    }
    torch::manual_seed(1000 + worker_.env().rank);  // dropout
    return worker_.group()->Try("training", [&] {
      for (int step = 0; step < settings_.Number("steps", 6); ++step) Step(*ddp, *optimizer, step, loss);
      return absl::OkStatus();
    });
  }

 private:
  void Step(Ddp& ddp, torch::optim::Optimizer& optimizer, int step, const Loss& loss) {
    if (settings_.Number("sched", 0) == 1) {
      for (auto& group : optimizer.param_groups()) group.options().set_lr(settings_.Real("lr", 0.01) * (step + 1) / 10);
    }
    ddp.zero_grad(settings_.Number("zero", 0) == 0);
    const int passes = settings_.Number("accumulate", 1);
    at::Tensor last;
    for (int pass = 0; pass < passes; ++pass) {
      const int number = (step * passes + pass) * worker_.env().world_size + worker_.env().rank;
      if (pass + 1 < passes) {
        auto no_sync = ddp.no_sync();
        Backward(Forward(ddp, step, number, loss));
      } else {
        last = Forward(ddp, step, number, loss);
        Backward(last);
      }
    }
    if (settings_.Has("clip")) {
      if (scaler_ != nullptr) scaler_->Unscale(optimizer);
      ClipGradNorm(Parameters(*ddp.module()), settings_.Real("clip", 0));
    }
    std::string scale;
    if (scaler_ != nullptr) {
      scaler_->Step(optimizer);
      scaler_->Update();
      scale = absl::StrFormat(" %08x", BitsOf(scaler_->scale()));
    } else {
      optimizer.step();
    }
    if (scheduler_ != nullptr) scheduler_->step();
    out_ << absl::StrFormat("%s %d %08x %08x%s\n", settings_.name(), step,
                            BitsOf(static_cast<float>(LossOfThisRank(last))), Checksum(*ddp.module()), scale);
  }

  at::Tensor Forward(Ddp& ddp, int step, int number, const Loss& loss) {
    if (!settings_.Has("autocast")) return loss(ddp, step, number);
    Autocast autocast(c10::DeviceType::CPU, settings_.Text("autocast", "") == "fp16" ? at::kHalf : at::kBFloat16);
    return loss(ddp, step, number);
  }

  void Backward(const at::Tensor& loss) { (scaler_ != nullptr ? scaler_->Scale(loss) : loss).backward(); }

  const Settings& settings_;
  Worker& worker_;
  std::ostream& out_;
  std::unique_ptr<LambdaLR> scheduler_;
  std::unique_ptr<GradScaler> scaler_;
};

template <typename M>
absl::Status TrainFilled(const Settings& settings, Worker& worker, std::ostream& out,
                         const typename Run<M>::Loss& loss) {
  auto module = std::make_shared<M>();
  FillParameters(*module);
  return Run<M>(settings, worker, out).Train(module, loss);
}

template <typename M>
absl::Status TrainPlain(const Settings& settings, Worker& worker, std::ostream& out) {
  return TrainFilled<M>(settings, worker, out, [](DistributedDataParallel<M>& ddp, int, int number) {
    const auto [x, y] = FloatBatch(number);
    return at::mse_loss(ddp.forward(x), y);
  });
}

absl::Status TrainGpt(const Settings& settings, Worker& worker, std::ostream& out) {
  gpt::Config config;
  config.vocab_size = kVocabulary;
  config.block_size = settings.Number("block", 16);
  config.n_layer = settings.Number("layers", 2);
  config.n_head = 2;
  config.n_embd = settings.Number("width", 32);
  config.dropout = settings.Real("dropout", 0);
  torch::manual_seed(1 + worker.env().rank);  // rank 0's weights are sent to all
  gpt::Model model(config);
  return Run<gpt::ModelImpl>(settings, worker, out)
      .Train(model.ptr(), [&config](DistributedDataParallel<gpt::ModelImpl>& ddp, int, int number) {
        const auto [tokens, targets] = TokenBatch(number, config.block_size, kVocabulary);
        return gpt::Loss(ddp.forward(tokens), targets);
      });
}

absl::Status Train(const Settings& settings, Worker& worker, std::ostream& out) {
  const std::string model = settings.Text("model", "gpt");
  if (model == "mlp") return TrainPlain<Mlp>(settings, worker, out);
  if (model == "normed") return TrainPlain<Normed>(settings, worker, out);
  if (model == "cnn") return TrainPlain<Cnn>(settings, worker, out);
  if (model == "tied") {
    return TrainFilled<Tied>(settings, worker, out, [](DistributedDataParallel<Tied>& ddp, int, int number) {
      const auto [tokens, targets] = TokenBatch(number, 16, kVocabulary);
      return gpt::Loss(ddp.forward(tokens), targets);
    });
  }
  if (model == "branches") {
    const bool alternate = settings.Text("branch", "same") == "alternate";
    const int rank = worker.env().rank;
    return TrainFilled<Branches>(settings, worker, out,
                                 [=](DistributedDataParallel<Branches>& ddp, int step, int number) {
                                   const auto [x, y] = FloatBatch(number);
                                   // Ranks differ in some steps, agree in others.
                                   const int64_t branch = alternate ? (step % 3 == 0 ? rank % 2 : step % 2) : 0;
                                   return at::mse_loss(ddp.forward(x, branch), y);
                                 });
  }
  if (model == "two_outputs") {
    return TrainFilled<TwoOutputs>(settings, worker, out,
                                   [](DistributedDataParallel<TwoOutputs>& ddp, int step, int number) {
                                     const auto [x, y] = FloatBatch(number);
                                     const auto [first, second] = ddp.forward(x);
                                     return at::mse_loss(step % 2 == 0 ? first : second, y);
                                   });
  }
  return TrainGpt(settings, worker, out);
}

absl::Status TrainAll(const std::string& path, const std::string& prefix, Worker& worker) {
  std::ofstream out(absl::StrCat(prefix, ".", worker.env().world_size, ".", worker.env().rank));
  for (const Settings& settings : ReadSettings(path)) {
    if (!settings.RunsWith(worker.env().world_size)) continue;
    if (absl::Status status = Train(settings, worker, out); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat(settings.name(), ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace ddprun::testing

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: worker SETTINGS OUTPUT_PREFIX\n";
    return 2;
  }
  ddprun::RunWorker({}, [argv](ddprun::Worker& worker) -> absl::Status {
    DDPRUN_RETURN_IF_ERROR(worker.InitProcessGroup());
    return ddprun::testing::TrainAll(argv[1], argv[2], worker);
  });
}
