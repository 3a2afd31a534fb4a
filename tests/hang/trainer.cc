// An ordinary C++ trainer with one bug, as train.py is one in Python: HANG names a function of kBugs, which rank ODD
// (1) runs at step AT (20); or it is "other", which replaces its collective there, or "early", where it ends. Case
// `none` trains for STEPS steps. DEVICE: cpu (default) or cuda.
#include <ATen/Functions.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "base/status_macros.h"
#include "worker_runtime/base/parameters.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/worker.h"

// Not in an anonymous namespace: reports name these functions.
namespace hang {

std::string Setting(const char* name, const char* otherwise) {
  const char* const value = getenv(name);
  return value == nullptr ? otherwise : value;
}

const std::string kHang = Setting("HANG", "none");

[[gnu::noinline]] void Sleep() {
  std::this_thread::sleep_for(std::chrono::hours(1000));
  asm volatile("");  // not a tail call, which leaves no frame
}

[[gnu::noinline]] void Lock() {
  std::mutex mutex;
  mutex.lock();
  mutex.lock();
  mutex.unlock();
}

[[gnu::noinline]] void Fifo() {
  const std::string path = Setting("FOLDER", "/tmp") + "/fifo";
  if (mkfifo(path.c_str(), 0600) == 0) close(open(path.c_str(), O_RDONLY));
}

[[gnu::noinline]] void Child() {
  if (system("sleep 1000000") != 0) abort();
}

[[gnu::noinline]] void Spin() {
  while (true) asm volatile("");
}

void Stop() { kill(getpid(), SIGSTOP); }

const std::map<std::string, std::function<void()>> kBugs = {{"sleep", Sleep}, {"lock", Lock}, {"fifo", Fifo},
                                                            {"child", Child}, {"spin", Spin}, {"stop", Stop}};

absl::Status Train(ddprun::Worker& worker) {
  DDPRUN_RETURN_IF_ERROR(worker.InitProcessGroup());
  ddprun::ProcessGroup& group = *worker.group();
  torch::nn::Linear net(64, 10);
  net->to(worker.device());
  DDPRUN_ASSIGN_OR_RETURN(auto ddp, ddprun::MakeDistributedDataParallel(net, worker.group()));
  torch::optim::SGD optimizer(ddprun::Parameters(net), torch::optim::SGDOptions(0.01));
  const int steps = std::stoi(Setting("STEPS", "1000000")), at = std::stoi(Setting("AT", "20"));
  const auto bug = kBugs.find(kHang);
  for (int step = 0; step < steps; ++step) {
    if (step == 10) std::cout << "step 10" << std::endl;
    const bool its_turn = step == at && worker.env().rank == std::stoi(Setting("ODD", "1"));
    if (its_turn && bug != kBugs.end()) bug->second();
    if (its_turn && kHang == "early") return absl::OkStatus();
    const at::Tensor loss = ddp->forward(at::randn({8, 64}).to(worker.device())).square().mean();
    ddp->zero_grad();
    loss.backward();
    optimizer.step();
    const at::Tensor value = loss.detach().reshape({1});
    DDPRUN_RETURN_IF_ERROR(its_turn && kHang == "other" ? group.Broadcast(value) : group.AllReduce(value));
    value.item<float>();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return absl::OkStatus();
}

}  // namespace hang

int main() {
  ddprun::RunWorker(
      {.device = hang::Setting("DEVICE", "cpu"), .timeout = absl::Seconds(std::stoi(hang::Setting("TIMEOUT", "1800")))},
      hang::Train);
}
