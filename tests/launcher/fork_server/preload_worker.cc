// A worker in C++ of one behaviour, for tests of --preload:
//   identity   prints all of its observable state that does not vary between runs
//   restart    rank 1 kills itself in the first round; each prints its pid, and its step
//   wait       prints its pid; in the first round it then waits for a signal
//   fail       rank 0 returns an error
//   crash      rank 0 writes to an invalid address
//   random     draws a random number before RunWorker, and prints one
//   thread     starts a thread before RunWorker
//   no_worker  ends with 3 before RunWorker
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "worker_runtime/worker.h"

extern char** environ;

namespace ddprun {
namespace {

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Kinds of the open descriptors; with numbers for the standard streams only, as the others' vary.
std::vector<std::string> Descriptors() {
  std::vector<std::string> found;
  for (int fd = 0; fd < 1024; ++fd) {
    char target[256] = "";
    if (readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), target, sizeof target - 1) < 0) continue;
    found.push_back(absl::StrCat(fd < 3 ? absl::StrCat(fd) : "fd", "=",
                                 std::string(target).substr(0, std::string(target).find(':'))));
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Waits for the connections to the launcher and to the store, and for that of the thread that answers the launcher's
// questions, which connects when it gets to run.
std::vector<std::string> AwaitDescriptors() {
  while (true) {
    std::vector<std::string> found = Descriptors();
    if (std::count(found.begin(), found.end(), "fd=socket") >= 3) return found;
    std::this_thread::yield();
  }
}

std::vector<std::string> Environment(std::vector<std::string> entries) {
  for (std::string& text : entries) {
    for (const char* varying :
         {"MASTER_PORT=", "DDPRUN_LAUNCHER_ID=", "DDPRUN_WORKER_LINK=", "TORCHELASTIC_ERROR_FILE="}) {
      if (absl::StartsWith(text, varying)) text = varying;
    }
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::vector<std::string> Status() {
  std::vector<std::string> found;
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    for (const char* name :
         {"Name", "Umask", "Threads", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "Cpus_allowed:"}) {
      if (absl::StartsWith(line, name)) found.push_back(line);
    }
  }
  return found;
}

void PrintIdentity(int argc, char** argv) {
  int death_signal = 0;
  prctl(PR_GET_PDEATHSIG, &death_signal);
  rlimit files = {}, core = {};
  getrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_CORE, &core);
  std::string command_line = Read("/proc/self/cmdline");
  std::replace(command_line.begin(), command_line.end(), '\0', '|');
  char directory[4096] = "";
  const std::string prefix = absl::StrCat("rank ", getenv("RANK"), ": ");
  // One write per line, so that lines of several workers do not mix.
  const auto add = [&](const std::string& line) {
    const std::string text = absl::StrCat(prefix, line, "\n");
    [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
  };
  add(absl::StrJoin(argv, argv + argc, "|"));
  add(command_line);
  std::vector<std::string> own;
  for (char** entry = environ; *entry != nullptr; ++entry) own.push_back(*entry);
  const std::vector<std::string> shown = absl::StrSplit(Read("/proc/self/environ"), '\0', absl::SkipEmpty());
  for (const auto& lines : {AwaitDescriptors(), Environment(own), Environment(shown), Status()}) {
    for (const std::string& line : lines) add(line);
  }
  add(absl::StrCat("leads: ", getsid(0) == getpid(), " ", getpgid(0) == getpid(), " dies by ", death_signal, " limits ",
                   files.rlim_cur, " ", files.rlim_max, " ", core.rlim_cur, " nice ", getpriority(PRIO_PROCESS, 0)));
  add(getcwd(directory, sizeof directory));
  add(Read(absl::StrCat("/proc/", getppid(), "/comm")));
}

absl::Status Behave(const std::string& behaviour, Worker& worker) {
  const int rank = worker.env().rank;
  at::Tensor tensor = at::full({4}, 1.0f);
  DDPRUN_RETURN_IF_ERROR(worker.group()->AllReduce(tensor));
  if (behaviour == "restart") {
    std::cout << absl::StrCat("round ", worker.env().restart_count, " rank ", rank, " pid ", getpid(), "\n")
              << std::flush;
    // After all have printed.
    DDPRUN_RETURN_IF_ERROR(worker.group()->AllReduce(tensor));
    if (worker.env().restart_count == 0 && rank == 1) raise(SIGKILL);
    return worker.group()->AllReduce(tensor);
  }
  if (behaviour == "random") {
    std::cout << absl::StrCat("random ", at::rand({1}, at::kDouble).item<double>(), "\n") << std::flush;
  }
  if (behaviour == "wait") {
    std::cout << absl::StrCat("pid ", getpid(), " waits\n") << std::flush;
    if (worker.env().restart_count == 0) pause();
  }
  if (behaviour == "fail" && rank == 0) return absl::DataLossError("the data are bad");
  if (behaviour == "crash" && rank == 0) {
    volatile int* volatile nowhere = reinterpret_cast<int*>(0x10);
    *nowhere = 1;
  }
  return worker.group()->AllReduce(tensor);
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  const std::string behaviour = argc > 1 ? argv[1] : "identity";
  printf("printed before RunWorker\n");
  std::cerr << "error before RunWorker\n";
  if (behaviour == "no_worker") return 3;
  if (behaviour == "random") at::rand({1});
  std::binary_semaphore never(0);
  std::thread thread;
  if (behaviour == "thread") thread = std::thread([&] { never.acquire(); });
  ddprun::RunWorker({.timeout = absl::Seconds(60)}, [&](ddprun::Worker& worker) {
    DDPRUN_RETURN_IF_ERROR(worker.InitProcessGroup());
    if (behaviour == "identity") ddprun::PrintIdentity(argc, argv);
    return ddprun::Behave(behaviour, worker);
  });
}
