// A worker for tests of ranks that are processes:
//   rank_program BEHAVIOUR [SECONDS [DEVICE]]
// prints "rank R ready" when its group has been created and has done one all-reduce, and exits through RunWorker.
// SECONDS is the group's timeout (30), DEVICE that of WorkerOptions (cpu).
//
//   loop        all-reduces until something fails
//   loop_alone  rank 2 sleeps; the others all-reduce
//   async       rank 2 sleeps; the others start two all-reduces and wait for them
//   ok          exits at once
//   error       rank 1 returns an error, the others all-reduce
//   give_up     rank 1 returns a non-restartable error, the others all-reduce
//   throw       rank 1 throws an int, the others all-reduce
//   uncaught    rank 1 throws in another thread
//   crash       rank 1 writes to an invalid address
//   progress    rank 1 reports its progress and kills itself, the others all-reduce
//   shapes      rank 1 passes a longer tensor
//   raw         all-reduces with c10d itself, without ProcessGroup::Try, until something fails
//   reform      all-reduces until a rank is lost; the survivors create a new group and print its sum
//   abort       all-reduces, and a thread aborts the group on SIGUSR1; rank 0 sleeps
//   half_send, half_broadcast, half_scatter
//               rank 0 sends a large message to rank 1, which stops in the middle of it; a thread aborts the group of
//               rank 0 on SIGUSR1
//   stop        checks StopRequested in every step, and prints the remaining seconds when it stops
//   shutdown    shuts its group down and prints the timeouts of its barriers in milliseconds (needs
//               TORCH_FR_BUFFER_SIZE)
//   settings    prints its device, its threads, and whether its random numbers are those of seed 7
//   many_lines  prints more than a pipe holds
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "worker_runtime/base/non_restartable.h"
#include "worker_runtime/process_group/collectives.h"
#include "worker_runtime/report_progress.h"
#include "worker_runtime/stop_requested.h"
#include "worker_runtime/worker.h"

namespace ddprun {
namespace {

void Say(const std::string& text) {
  const std::string line = text + "\n";
  [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, line.data(), line.size());
}

absl::Status Loop(Worker& worker, int64_t elements) {
  at::Tensor tensor = at::full({elements}, 1.0f, at::TensorOptions(worker.device()));
  while (true) {
    DDPRUN_RETURN_IF_ERROR(worker.group()->AllReduce(tensor));
    tensor.fill_(1.0f);
    tensor[0].item<float>();  // a GPU may not have begun
  }
}

// Survivors get new ranks, as a launcher would assign them in a new round.
absl::Status Reform(Worker& worker) {
  absl::Status failed = Loop(worker, 100000);
  Say(absl::StrCat("rank ", worker.env().rank, " saw: ", failed.message()));
  worker.set_group(nullptr);
  WorkerEnv env = worker.env();
  env.world_size = env.local_world_size = 2;
  env.rank = env.local_rank = worker.env().rank == 0 ? 0 : 1;
  DDPRUN_ASSIGN_OR_RETURN(auto group, ProcessGroup::Create(env, {.timeout = absl::Seconds(30)}));
  worker.set_group(group);
  at::Tensor tensor = at::full({1}, 1.0f);
  DDPRUN_RETURN_IF_ERROR(worker.group()->AllReduce(tensor));
  Say(absl::StrCat("new sum ", tensor.item<float>()));
  return absl::OkStatus();
}

[[gnu::noinline]] void WriteToNowhere() {
  volatile int* nowhere = reinterpret_cast<int*>(0x10);
  *nowhere = 1;
}

// Prints the timeout of every collective in LibTorch's flight recorder.
absl::Status ShutDown(ProcessGroup& group) {
  DDPRUN_RETURN_IF_ERROR(group.Shutdown());
  const std::string trace = c10d::dump_fr_trace_json(true, false);
  for (const absl::string_view part : absl::StrSplit(trace, "\"profiling_name\":")) {
    const size_t timeout = part.find("\"timeout_ms\":");
    if (timeout == absl::string_view::npos) continue;
    const absl::string_view number = part.substr(timeout + 13, part.find_first_of(",}", timeout) - timeout - 13);
    Say(absl::StrCat(part.substr(0, part.find(',')), " ", number));
  }
  return absl::OkStatus();
}

// Waits for a send or receive, for a future, or for a collective.
absl::Status HalfAMessage(ProcessGroup& group, const std::string& behaviour) {
  constexpr int64_t kElements = 64 << 20;
  const bool sends = group.rank() == 0;
  at::Tensor tensor = at::full({kElements}, sends ? 1.0f : 0.0f);
  if (!sends) {
    std::thread([tensor] {
      const std::atomic_ref<float> first(*tensor.data_ptr<float>());
      while (first.load() == 0) usleep(1000);
      Say("half a message has come");
      raise(SIGSTOP);
    }).detach();
  }
  if (behaviour == "half_send") {
    absl::StatusOr<Work> work = sends ? AsyncSend(group, tensor, 1) : AsyncRecv(group, tensor, 0);
    return work.ok() ? work->Wait() : work.status();
  }
  return group.Try(behaviour, [&] {
    std::vector<at::Tensor> tensors = {tensor};
    if (behaviour == "half_broadcast") {
      const auto future = group.c10d()->broadcast(tensors)->getFuture();
      future->wait();
      future->value();
    } else {
      std::vector<std::vector<at::Tensor>> parts;
      if (sends) parts.push_back({at::full({kElements}, 0.0f), tensor});
      group.c10d()->scatter(tensors, parts)->wait();
    }
    return absl::OkStatus();
  });
}

sigset_t AbortSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  return signals;
}

void AbortOnSignal(std::shared_ptr<ProcessGroup> group) {
  std::thread([group] {
    const sigset_t signals = AbortSignals();
    int signal = 0;
    sigwait(&signals, &signal);
    group->Abort("told so by a signal");
  }).detach();
}

absl::Status TrainUntilStopped(ProcessGroup& group, int rank) {
  bool ready = false;
  while (true) {
    DDPRUN_ASSIGN_OR_RETURN(auto stop, StopRequested(group));
    if (stop.has_value()) {
      const double left = absl::ToDoubleSeconds(*stop - absl::Now());
      Say(absl::StrCat("rank ", rank, " stops, at most ", std::ceil(left / 10) * 10, " s left"));
      return absl::OkStatus();
    }
    if (!ready) Say(absl::StrCat("rank ", rank, " ready"));
    ready = true;
  }
}

absl::Status ShowSettings(const Worker& worker) {
  const at::Tensor number = at::rand({1});
  at::manual_seed(7);
  Say(absl::StrCat("device ", worker.device().str(), ", ", at::get_num_threads(), " threads, ",
                   at::equal(number, at::rand({1})) ? "seed 7" : "another seed"));
  return absl::OkStatus();
}

// Two operations in flight, in which rank 2 does not take part.
absl::Status WaitInVain(ProcessGroup& group) {
  DDPRUN_ASSIGN_OR_RETURN(auto first, AsyncAllReduce(group, at::full({100000}, 1.0f)));
  DDPRUN_ASSIGN_OR_RETURN(auto second, AsyncAllReduce(group, at::full({100000}, 1.0f)));
  Say("in flight");
  const absl::Status status = first.Wait();
  Say(absl::StrCat("second: ", second.Wait().message()));
  return status;
}

absl::Status Behave(const std::string& behaviour, Worker& worker) {
  ProcessGroup& group = *worker.group();
  const int rank = worker.env().rank;
  at::Tensor tensor = at::full({4}, 1.0f, at::TensorOptions(worker.device()));
  DDPRUN_RETURN_IF_ERROR(group.AllReduce(tensor));
  if (behaviour == "abort" || behaviour.starts_with("half_")) AbortOnSignal(worker.group());
  if (behaviour == "stop") return TrainUntilStopped(group, rank);
  Say(absl::StrCat("rank ", rank, " ready"));
  if (behaviour == "abort" && rank == 0) pause();
  if (behaviour == "settings") return ShowSettings(worker);
  if (behaviour == "shutdown") return ShutDown(group);
  if (behaviour == "error" || behaviour == "throw" || behaviour == "crash" || behaviour == "uncaught") {
    // The launcher kills the others as soon as rank 1 fails: wait until all have printed their line.
    DDPRUN_RETURN_IF_ERROR(group.AllReduce(tensor));
  }
  if (behaviour == "ok") return absl::OkStatus();
  if (behaviour == "give_up" && rank == 1) return NonRestartable(absl::InvalidArgumentError("--layers is -1"));
  if (behaviour == "error" && rank == 1) return absl::DataLossError("the data of rank 1 are bad");
  if (behaviour == "throw" && rank == 1) throw 5;
  if (behaviour == "crash" && rank == 1) WriteToNowhere();
  if (behaviour == "progress" && rank == 1) {
    ReportProgress({.step = 120, .phase = "backward", .loss = 2.5});
    raise(SIGKILL);
  }
  if (behaviour == "uncaught" && rank == 1) std::thread([] { throw std::runtime_error("nobody catches this"); }).join();
  if (behaviour == "loop_alone" && rank == 2) pause();
  if (behaviour == "async" && rank == 2) pause();
  if (behaviour == "async") return WaitInVain(group);
  if (behaviour == "reform") return Reform(worker);
  if (behaviour.starts_with("half_")) return HalfAMessage(group, behaviour);
  if (behaviour == "many_lines") {
    for (int line = 0; line < 100000; ++line) puts("one of many lines, and nobody reads them");
    return absl::OkStatus();
  }
  if (behaviour == "shapes") return Loop(worker, rank == 1 ? 20 : 10);
  if (behaviour == "raw") {
    std::vector<at::Tensor> tensors = {tensor};
    while (true) group.c10d()->allreduce(tensors)->wait();
  }
  return Loop(worker, 100000);
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  const std::string behaviour = argc > 1 ? argv[1] : "loop";
  // Before the first thread is created.
  const sigset_t signals = ddprun::AbortSignals();
  if (behaviour == "abort" || behaviour.starts_with("half_")) pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const absl::Duration timeout = absl::Seconds(argc > 2 ? atoi(argv[2]) : 30);
  ddprun::RunWorker({.device = argc > 3 ? argv[3] : "cpu", .seed = 7, .timeout = timeout},
                    [&](ddprun::Worker& worker) -> absl::Status {
                      DDPRUN_RETURN_IF_ERROR(worker.InitProcessGroup());
                      return ddprun::Behave(behaviour, worker);
                    });
}
