#include "worker_runtime/process_group/cancellable.h"

#include <c10/util/Logging.h>
#include <stdlib.h>

#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace ddprun {
namespace {

struct Run {
  Mutex mutex;
  CondVar changed;
  std::optional<absl::Status> result ABSL_GUARDED_BY(mutex);
  std::optional<QuietLog> quiet ABSL_GUARDED_BY(mutex);  // set when the thread is left behind
};

struct Level {
  Mutex mutex;
  int quiet ABSL_GUARDED_BY(mutex) = 0;   // QuietLogs that exist
  int before ABSL_GUARDED_BY(mutex) = 0;  // the level without them
};

Level& TheLevel() {
  static auto* const level = new Level;
  return *level;
}

bool SetByUser() { return getenv("TORCH_CPP_LOG_LEVEL") != nullptr; }

}  // namespace

absl::Status RunCancellable(const std::stop_token& cancel, std::function<absl::Status()> work) {
  if (!cancel.stop_possible()) return work();
  const auto run = std::make_shared<Run>();
  std::thread thread([run, work = std::move(work)]() mutable {
    absl::Status result = work();
    work = nullptr;
    MutexLock lock(&run->mutex);
    run->result = std::move(result);
    run->changed.NotifyAll();
  });
  const std::stop_callback wake(cancel, [&run] {
    MutexLock lock(&run->mutex);
    run->changed.NotifyAll();
  });
  std::optional<absl::Status> result;
  {
    MutexLock lock(&run->mutex);
    while (!run->result.has_value() && !cancel.stop_requested()) run->changed.Wait(&run->mutex);
    result = run->result;
    if (!result.has_value()) run->quiet.emplace();
  }
  if (!result.has_value()) {
    thread.detach();
    return absl::CancelledError("cancelled");
  }
  thread.join();
  return *std::move(result);
}

QuietLog::QuietLog() {
  constexpr int kFatal = 3;
  if (SetByUser()) return;
  Level& level = TheLevel();
  MutexLock lock(&level.mutex);
  if (level.quiet++ > 0) return;
  level.before = FLAGS_caffe2_log_level;
  FLAGS_caffe2_log_level = kFatal;
}

QuietLog::~QuietLog() {
  if (SetByUser()) return;
  Level& level = TheLevel();
  MutexLock lock(&level.mutex);
  if (--level.quiet == 0) FLAGS_caffe2_log_level = level.before;
}

}  // namespace ddprun
