// One behaviour of a program that uses Spawn, for spawn_test.cc: spawn_program BEHAVIOUR [NPROCS]
// Prints what Spawn returned in the process that called it; exit code 0 if that was OK.
#include <ATen/Functions.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker_runtime/spawn/spawn.h"

namespace {

using ddprun::Worker;

// A single write, so that lines of several processes are not interleaved.
void Say(const std::string& text) {
  const std::string line = text + "\n";
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) abort();
}

absl::Status AddRanks(Worker& worker) {
  const at::Tensor sum = at::full({1}, worker.group()->rank() + 1.0f);
  DDPRUN_RETURN_IF_ERROR(worker.group()->AllReduce(sum));
  Say(absl::StrCat("rank ", worker.env().rank, "/", worker.env().world_size, " local ", worker.env().local_rank, "/",
                   worker.env().local_world_size, " sum ", sum.item<float>(), " omp ", getenv("OMP_NUM_THREADS"),
                   " stdin ", getchar() == EOF ? "empty" : "open", " mark ",
                   getenv("DDPRUN_SPAWN") == nullptr ? "gone" : "there"));
  return absl::OkStatus();
}

[[noreturn]] void Hang() {
  Say(absl::StrCat("pid ", getpid(), " hangs"));
  for (;;) pause();
}

absl::Status Behave(const std::string& behaviour, Worker& worker) {
  DDPRUN_RETURN_IF_ERROR(worker.InitProcessGroup());
  const bool one = worker.env().rank == 1;
  if (behaviour == "fail" && one) return absl::InternalError("the weights are not finite");
  if (behaviour == "throw" && one) at::zeros({2}).view({3});
  if (behaviour == "kill" && one) raise(SIGKILL);
  if (behaviour == "exit" && one) _exit(7);
  if (behaviour == "nested" && one) return ddprun::Spawn(2, {}, [](Worker&) { return absl::OkStatus(); });
  if (behaviour == "hang") {
    if (one) return absl::InternalError("the others hang");
    Hang();
  }
  if (behaviour == "stubborn") {
    if (!one) signal(SIGTERM, SIG_IGN);
    DDPRUN_RETURN_IF_ERROR(worker.group()->Barrier());
    if (one) return absl::InternalError("the others do not listen");
    Hang();
  }
  if (behaviour == "wait") Hang();
  return AddRanks(worker);
}

absl::Status Call(const std::string& behaviour, int nprocs) {
  ddprun::SpawnOptions options;
  if (behaviour == "stubborn") options.grace = absl::Milliseconds(100);
  return ddprun::Spawn(nprocs, options, [&](Worker& worker) { return Behave(behaviour, worker); });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const std::string behaviour = argv[1];
  const int nprocs = argc > 2 ? atoi(argv[2]) : 2;
  Say(absl::StrCat("main with ", argc, " arguments, the last is ", argv[argc - 1]));
  // Only workers have the variable.
  if (behaviour == "lost" && getenv("DDPRUN_SPAWN") != nullptr) return 0;
  if (behaviour == "ignored") signal(SIGCHLD, SIG_IGN);
  absl::Status status = Call(behaviour, nprocs);
  if (behaviour == "twice" && status.ok()) {
    status = ddprun::Spawn(nprocs, {}, [](Worker& worker) {
      Say(absl::StrCat("second call, rank ", worker.env().rank));
      return absl::OkStatus();
    });
  }
  Say(absl::StrCat("returned: ", status.ToString()));
  return status.ok() ? 0 : 1;
}
