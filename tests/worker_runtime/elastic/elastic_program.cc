// A small elastic training for tests: convolution, BatchNorm, dropout, AdamW, several buckets, an average of
// parameters. Prints these lines:
//   rank R pid P begins                    the process has started
//   step N rank R loss X                   N steps are committed; X has all bits
//   from N                                 a later round of this process begins with N steps
//   end rank R model H                     hash of parameters, buffers and the average after the last step
//   holding PLACE                          see --hold
//   gate S round N rank R                  see --gate
//   evaluation N rank R loss X             the mean over all ranks after N steps
//   counted N                              with --count: steps of all ranks, as a Metrics has counted them
//   batch S rank R of W round N epoch E: I ...  with --ledger: samples of step S, before the step
//   commit S round N                       with --ledger: a rank has committed step S
//
//   elastic_program --steps=N [--folder=F] [--every=N] [--samples=N] [--async] [--ledger] [--require-checkpoint=BOOL]
//     --gate=STEP:FILE ...       from step STEP on, waits in each step until the file exists, the round ends, or the
//                                process is to stop
//     --hold=RANK:STEP:PLACE ... a process of round 1 waits there until it is killed or its group is aborted. In round
//                                1: "forward", "backward" (some gradients have been reduced), "reduced" (before the
//                                buffers are set to rank 0's), "committed", "evaluation" (after STEP steps), "save"
//                                (while writing a checkpoint). In round 2: "sending" (as the source of the state)
//     --fail=RANK:STEP           the step returns an error of the trainer
//     --crash=RANK:STEP          SIGKILL in this step, in every round
//     --evaluate=N               evaluates every N steps
//     --pause=MS                 added to each step
//     --linger=S                 rank 0 exits S seconds after its training
//     --die-connecting=ROUND:RANK ...  a process that starts in this round and rank kills itself when it first connects
//                                to another rank
//     --count                    counts the steps
//     --scaler                   steps through a GradScaler, whose scale grows every second step
//     --step-scheduler           the function given to Step::Commit steps the scheduler
//     --diverge=RANK             from round 2 on, the rank has another learning rate
//     --draws-more=RANK          the rank draws samples twice in step 2
//     --full-disk=FROM:TO        checkpoints of these steps can't be written
//     --device=DEVICE --backend=BACKEND --timeout=S    as in WorkerOptions
#include <ATen/Functions.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "tests/worker_runtime/checkpoint/hooked_files.h"
#include "worker_runtime/base/parameters.h"
#include "worker_runtime/data/batch_sampler.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/extras/amp.h"
#include "worker_runtime/extras/optim.h"
#include "worker_runtime/stop_requested.h"
#include "worker_runtime/training.h"
#include "worker_runtime/worker.h"

namespace ddprun::testing {
namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 6, 3).padding(1)));
    norm = register_module("norm", torch::nn::BatchNorm2d(6));
    hidden = register_module("hidden", torch::nn::Linear(6 * 64, 40));
    drop = register_module("drop", torch::nn::Dropout(0.2));
    out = register_module("out", torch::nn::Linear(40, 4));
  }
  at::Tensor forward(const at::Tensor& images) {
    at::Tensor x = torch::nn::functional::relu(norm(conv(images))).flatten(1);
    return out(drop(torch::nn::functional::relu(hidden(x))));
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear hidden{nullptr}, out{nullptr};
  torch::nn::Dropout drop{nullptr};
};
TORCH_MODULE(Net);

void SendToLauncher(const std::string& text) {
  const std::string line = text + "\n";
  [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, line.data(), line.size());
}

struct Flags {
  int64_t steps = 10;
  std::string folder;
  int64_t every = 4;
  int64_t samples = 50;
  bool async = false;
  std::vector<std::string> holds;
  std::string fails;
  std::vector<std::string> gates;
  bool ledger = false;
  int64_t evaluate = 0;
  int64_t pause = 0;
  std::string crashes;
  unsigned linger = 0;
  std::vector<std::string> die_connecting;
  bool step_scheduler = false;
  bool count = false;
  bool scaler = false;
  int diverges = -1;
  int draws_more = -1;
  std::string full_disk;
  bool require_checkpoint = false;
  std::string device = "cpu";
  std::string backend;
  int64_t timeout = 100;
};

bool dies_connecting = false;

bool ConnectsToRank(int fd, const sockaddr* address) {
  int type = 0;
  socklen_t length = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM) return false;
  if (address->sa_family != AF_INET) return false;
  return absl::StrCat(ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port)) != getenv("MASTER_PORT");
}

class Trainer {
 public:
  Trainer(Worker& worker, const Flags& flags)
      : worker_(worker), flags_(flags), first_round_(worker.env().round), ddp_(net_, {.bucket_cap_mb = 0.004}) {}

  absl::Status Run() {
    SendToLauncher(absl::StrCat("rank ", worker_.env().rank, " pid ", getpid(), " begins"));
    net_->to(worker_.device());
    net_->train();
    AdamW optimizer(Parameters(net_), torch::optim::AdamWOptions(0.01));
    LambdaLR scheduler(optimizer, [](int64_t epoch) { return 1.0 / (1.0 + 0.1 * static_cast<double>(epoch)); });
    BatchSampler sampler(flags_.samples, {.batch_size = 4, .seed = 5});
    const auto sending = [this] {
      if (worker_.committed_step().has_value()) Hold("sending", *worker_.committed_step(), /*round=*/2);
      return std::string();
    };
    HookedFiles files([this](const std::string& operation, const std::string&) {
      if (operation != "write") return absl::OkStatus();
      Hold("save", saving_);
      const std::pair<std::string, std::string> full = absl::StrSplit(flags_.full_disk, absl::MaxSplits(':', 1));
      int64_t from = 0, to = 0;
      const bool fails =
          absl::SimpleAtoi(full.first, &from) && absl::SimpleAtoi(full.second, &to) && saving_ >= from && saving_ <= to;
      return fails ? absl::ResourceExhaustedError("No space left on device") : absl::OkStatus();
    });
    Training training(worker_, ddp_, optimizer,
                      {.steps = flags_.steps,
                       .checkpoint = {.folder = flags_.folder,
                                      .async = flags_.async,
                                      .require_checkpoint = flags_.require_checkpoint,
                                      .files = &files},
                       .checkpoint_every = flags_.every});
    training.Add(scheduler, sampler);
    if (flags_.scaler) training.Add(scaler_);
    Metrics metrics;
    if (flags_.count) training.Add(metrics);
    average_ = at::zeros_like(net_->conv->weight);
    DDPRUN_RETURN_IF_ERROR(training.state().AddTensor("average", average_));
    DDPRUN_RETURN_IF_ERROR(
        training.state().AddText("hold", sending, [](const std::string&) { return absl::OkStatus(); }));
    if (flags_.evaluate > 0) training.EvaluateEvery(flags_.evaluate, [this](int64_t steps) { return Evaluate(steps); });
    DDPRUN_RETURN_IF_ERROR(training.Run([&](Step& step) -> absl::Status {
      metrics.AddSum("steps", 1);
      DDPRUN_ASSIGN_OR_RETURN(const at::Tensor loss, Backward(step, sampler));
      if (worker_.env().round > 1 && worker_.env().rank == flags_.diverges) {
        optimizer.param_groups()[0].options().set_lr(0.02);
      }
      step.Commit([&] {
        const at::NoGradGuard no_grad;
        average_.mul_(0.9).add_(net_->conv->weight, 0.1);
        if (flags_.step_scheduler) scheduler.step();
      });
      saving_ = step.number() + 1;
      SendToLauncher(absl::StrFormat("step %d rank %d loss %.9g", saving_, worker_.env().rank, loss.item<float>()));
      if (flags_.ledger) SendToLauncher(absl::StrCat("commit ", step.number(), " round ", worker_.env().round));
      Hold("committed", step.number());
      if (!flags_.count || saving_ < flags_.steps) return absl::OkStatus();
      DDPRUN_ASSIGN_OR_RETURN(const auto counted, metrics.Reduce(*worker_.group()));
      if (worker_.env().rank == 0) SendToLauncher(absl::StrCat("counted ", counted.at("steps")));
      return absl::OkStatus();
    }));
    SendToLauncher(absl::StrFormat("end rank %d model %x", worker_.env().rank, Hash()));
    if (worker_.env().rank == 0) sleep(flags_.linger);
    return absl::OkStatus();
  }

 private:
  std::pair<at::Tensor, at::Tensor> Samples(const std::vector<size_t>& indices) const {
    std::vector<at::Tensor> images, targets;
    for (const size_t index : indices) {
      images.push_back(((at::arange(64) * (7 + static_cast<int64_t>(index))) % 23).to(at::kFloat).view({1, 8, 8}) / 23);
      targets.push_back(at::full({}, static_cast<int64_t>(index % 4), at::kLong));
    }
    return {at::stack(images).to(worker_.device()), at::stack(targets).to(worker_.device())};
  }

  // Draws random numbers, and would change buffers in training mode.
  absl::Status Evaluate(int64_t steps) {
    const auto [images, targets] = Samples({1, 5, 8, static_cast<size_t>(10 + worker_.env().rank)});
    at::Tensor loss =
        at::cross_entropy_loss(net_->forward(images + 0.01 * at::rand({1}).to(worker_.device())), targets);
    if (loss.requires_grad()) return absl::InternalError("an evaluation has gradients");
    Hold("evaluation", steps);
    DDPRUN_RETURN_IF_ERROR(worker_.group()->AllReduce(loss, ReduceOp::kSum));
    const float mean = loss.item<float>() / static_cast<float>(worker_.env().world_size);
    SendToLauncher(absl::StrFormat("evaluation %d rank %d loss %.9g", steps, worker_.env().rank, mean));
    return absl::OkStatus();
  }

  absl::StatusOr<at::Tensor> Backward(Step& of, BatchSampler& sampler) {
    const int64_t step = of.number();
    if (worker_.recovery().round != said_) {
      said_ = worker_.recovery().round;
      SendToLauncher(absl::StrCat("from ", worker_.recovery().step));
    }
    const int64_t left =
        sampler.position() == sampler.length() ? sampler.length() : sampler.length() - sampler.position();
    const std::vector<size_t> indices = of.Next(sampler);
    if (step == 2 && worker_.env().rank == flags_.draws_more) of.Next(sampler);
    const auto [images, targets] = Samples(indices);
    if (flags_.ledger) {
      SendToLauncher(absl::StrCat("batch ", step, " rank ", worker_.env().rank, " of ", worker_.env().world_size,
                                  " round ", worker_.env().round, " epoch ", sampler.epoch(), ": ",
                                  worker_.env().rank >= left ? "" : absl::StrJoin(indices, " ")));
    }
    AwaitGates(step);
    usleep(static_cast<useconds_t>(1000 * flags_.pause));
    Hold("forward", step);
    if (flags_.crashes == absl::StrCat(worker_.env().rank, ":", step)) raise(SIGKILL);
    if (flags_.fails == absl::StrCat(worker_.env().rank, ":", step)) return absl::UnavailableError("no such file");
    const at::Tensor loss = at::cross_entropy_loss(ddp_(images), targets);
    // This gradient is computed late in backward, after others have been reduced.
    const auto hook = net_->conv->bias.register_hook([&](const at::Tensor&) { Hold("backward", step); });
    of.Backward(loss);
    net_->conv->bias.remove_hook(hook);
    Hold("reduced", step);
    return loss;
  }

  void AwaitGates(int64_t step) {
    for (const std::string& gate : flags_.gates) {
      const std::pair<std::string, std::string> from = absl::StrSplit(gate, absl::MaxSplits(':', 1));
      int64_t first = 0;
      if (!absl::SimpleAtoi(from.first, &first) || step < first) continue;
      if (access(from.second.c_str(), F_OK) == 0) continue;
      SendToLauncher(absl::StrCat("gate ", step, " round ", worker_.env().round, " rank ", worker_.env().rank));
      while (access(from.second.c_str(), F_OK) != 0 && worker_.group()->Health().ok() && !worker_.suspended() &&
             TimeUntilStop() == absl::InfiniteDuration()) {
        usleep(1000);
      }
    }
  }

  void Hold(const std::string& place, int64_t step, uint64_t round = 1) {
    if (worker_.env().round != round || first_round_ != 1) return;
    for (const std::string& hold : flags_.holds) {
      if (hold != absl::StrCat(worker_.env().rank, ":", step, ":", place)) continue;
      SendToLauncher(absl::StrCat("holding ", place));
      while (worker_.group()->Health().ok()) usleep(1000);
    }
  }

  uint64_t Hash() const {
    uint64_t hash = 1469598103934665603;  // FNV-1a
    std::vector<at::Tensor> tensors = net_->parameters();
    for (const at::Tensor& buffer : net_->buffers()) tensors.push_back(buffer);
    tensors.push_back(average_);
    for (const at::Tensor& tensor : tensors) {
      const at::Tensor flat = tensor.detach().cpu().contiguous();
      const auto* const bytes = static_cast<const unsigned char*>(flat.const_data_ptr());
      for (size_t i = 0; i < flat.nbytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211u;
    }
    return hash;
  }

  Worker& worker_;
  const Flags& flags_;
  const uint64_t first_round_;
  Net net_;
  at::Tensor average_;
  GradScaler scaler_{GradScalerOptions{.init_scale = 16, .growth_interval = 2}};
  DistributedDataParallel<NetImpl> ddp_;
  uint64_t said_ = 0;
  int64_t saving_ = 0;
};

int Main(int argc, char** argv) {
  CLI::App app;
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  Flags flags;
  app.add_option("--steps", flags.steps);
  app.add_option("--folder", flags.folder);
  app.add_option("--every", flags.every);
  app.add_option("--samples", flags.samples);
  app.add_flag("--async", flags.async);
  app.add_option("--hold", flags.holds)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--fail", flags.fails);
  app.add_option("--gate", flags.gates)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--ledger", flags.ledger);
  app.add_option("--evaluate", flags.evaluate);
  app.add_option("--pause", flags.pause);
  app.add_option("--crash", flags.crashes);
  app.add_option("--linger", flags.linger);
  app.add_flag("--count", flags.count);
  app.add_flag("--step-scheduler", flags.step_scheduler);
  app.add_flag("--scaler", flags.scaler);
  app.add_option("--diverge", flags.diverges);
  app.add_option("--draws-more", flags.draws_more);
  app.add_option("--full-disk", flags.full_disk);
  app.add_option("--device", flags.device);
  app.add_option("--backend", flags.backend);
  app.add_option("--timeout", flags.timeout);
  app.add_option("--require-checkpoint", flags.require_checkpoint);
  app.add_option("--die-connecting", flags.die_connecting)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  CLI11_PARSE(app, argc, argv);
  const WorkerOptions options = {
      .device = flags.device, .seed = 3, .backend = flags.backend, .timeout = absl::Seconds(flags.timeout)};
  RunWorker(options, [&flags](Worker& worker) {
    const std::string place = absl::StrCat(worker.env().round, ":", worker.env().rank);
    dies_connecting = std::ranges::count(flags.die_connecting, place) != 0;
    // Gloo makes the rank with the larger address connect to the other.
    if (dies_connecting) setenv("GLOO_SOCKET_IFNAME", "127.0.0.9", 1);
    return Trainer(worker, flags).Run();
  });
}

}  // namespace
}  // namespace ddprun::testing

// Replaces the C library's function, also for Gloo.
extern "C" int connect(int fd, const sockaddr* address, socklen_t length) {
  if (ddprun::testing::dies_connecting && ddprun::testing::ConnectsToRank(fd, address)) {
    ddprun::testing::SendToLauncher("dies connecting");
    raise(SIGKILL);
  }
  return static_cast<int>(syscall(SYS_connect, fd, address, length));
}

int main(int argc, char** argv) { return ddprun::testing::Main(argc, argv); }
