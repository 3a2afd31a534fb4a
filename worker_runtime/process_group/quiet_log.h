#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_QUIET_LOG_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_QUIET_LOG_H_

namespace ddprun {

// While an object of this class exists, LibTorch logs only fatal errors, in all threads, unless TORCH_CPP_LOG_LEVEL is
// set. For calls whose errors are returned or ignored: c10d logs them too, with its C++ stack. Thread-safe.
class QuietLog {
 public:
  QuietLog();
  ~QuietLog();
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_QUIET_LOG_H_
