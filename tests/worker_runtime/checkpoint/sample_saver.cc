// Saves sample checkpoints of consecutive steps and prints "saved STEP" after each. After the first save it is killed
// by SIGKILL within the time of three saves, after THOUSANDTHS of that time.
//
//   sample_saver FOLDER THOUSANDTHS BYTES
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "tests/worker_runtime/checkpoint/hooked_files.h"
#include "tests/worker_runtime/checkpoint/sample_checkpoint.h"
#include "worker_runtime/checkpoint/checkpoint_folder.h"

namespace ddprun {
namespace {

// A kernel timer, so that it works whatever the program does.
bool KillAfter(absl::Duration time) {
  sigevent event = {};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer;
  itimerspec when = {};
  when.it_value = absl::ToTimespec(time + absl::Nanoseconds(1));
  return ::timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && ::timer_settime(timer, 0, &when, nullptr) == 0;
}

int Main(const std::string& path, int thousandths, size_t bytes) {
  testing::UnsyncedFiles files;
  CheckpointFolder folder(path, files);
  const absl::StatusOr<int64_t> newest = testing::NewestSample(folder);
  if (!newest.ok()) return 1;
  const SteadyTime start = SteadyNow();
  for (int64_t step = *newest + 1;; ++step) {
    if (!testing::SaveSample(folder, step, 2, bytes).ok()) return 1;
    const std::string line = absl::StrCat("saved ", step, "\n");
    if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) return 1;
    if (step == *newest + 1 && !KillAfter((SteadyNow() - start) * 3 * thousandths / 1000)) return 1;
  }
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  return ddprun::Main(argv[1], std::atoi(argv[2]), std::strtoull(argv[3], nullptr, 10));
}
