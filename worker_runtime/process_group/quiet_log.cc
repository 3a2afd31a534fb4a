#include "worker_runtime/process_group/quiet_log.h"

#include <c10/util/Logging.h>
#include <stdlib.h>

#include "base/mutex.h"

namespace ddprun {
namespace {

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
