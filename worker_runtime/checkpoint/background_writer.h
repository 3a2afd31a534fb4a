#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_BACKGROUND_WRITER_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_BACKGROUND_WRITER_H_

#include <functional>
#include <thread>

#include "absl/status/status.h"

namespace ddprun {

// Runs one job at a time on its own thread. Thread-compatible; the job's effects are visible after Wait.
class BackgroundWriter {
 public:
  BackgroundWriter() = default;
  // Waits for the job.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  // REQUIRES: Wait was called since the last Start.
  void Start(std::function<absl::Status()> job);

  // Blocks until the job is done and returns its status, once; OK if there was none.
  absl::Status Wait();

 private:
  std::thread thread_;
  absl::Status status_;  // the thread's while it runs
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_BACKGROUND_WRITER_H_
