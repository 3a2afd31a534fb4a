#ifndef DDPRUN_LAUNCHER_IO_OUTPUT_TAIL_H_
#define DDPRUN_LAUNCHER_IO_OUTPUT_TAIL_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace ddprun::launcher {

// At most this many bytes of the end of a worker's output are kept.
inline constexpr size_t kOutputTailBytes = 8192;

// The end of what was written to a pipe. Thread-safe: one thread reads the pipe, another may ask for the text at any
// time and never waits for the first, which may be blocked elsewhere.
class PipeTail {
 public:
  // `pipe` is the read end, non-blocking; it must stay open until End.
  explicit PipeTail(int pipe) : pipe_(pipe) {}

  // As read(2); keeps the bytes.
  ssize_t Read(char* buffer, size_t size);
  // The pipe will be closed.
  void End();

  // Returns the last bytes that were written, including those that have not been read yet.
  std::string Text() const;

 private:
  mutable Mutex mutex_;
  int pipe_ ABSL_GUARDED_BY(mutex_);  // -1 after End
  std::string kept_ ABSL_GUARDED_BY(mutex_);
};

// Returns the last bytes of this file beyond offset `from`; empty if it can't be read.
std::string ReadFileTail(const std::string& path, int64_t from);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_IO_OUTPUT_TAIL_H_
