#ifndef DDPRUN_BASE_STREAM_WRITER_H_
#define DDPRUN_BASE_STREAM_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/string_view.h"
#include "base/steady_time.h"

namespace ddprun {

// Writes text to a terminal, pipe or file from a dedicated thread, so that the caller never waits for a slow reader: a
// terminal may be stopped (Ctrl-S) and a pipe may stay full for any time.
//
// The buffer is bounded. Text that does not fit is dropped; once half of the buffer is free again, a line in its place
// reports the number of dropped lines.
//
// Setting O_NONBLOCK instead is not possible, because the flag belongs to the open file, which the shell and the
// workers share. A logging library with a thread (spdlog) would join that thread at exit while it may be blocked.
//
// Thread-safe.
class StreamWriter {
 public:
  struct Options {
    int fd = -1;  // not owned; must stay open until the process ends
    size_t max_bytes = 0;
    // Returns the line, with a newline, to write in place of `lines` dropped lines.
    std::function<std::string(int64_t lines)> gap;
    // Called once, from the writer's thread, when `fd` has no reader any more (EPIPE); may be null. Later text is
    // discarded.
    std::function<void(int error)> on_broken;
    int drained_event = -1;  // an eventfd that is signaled whenever all text has been written; as `fd`; -1: none
  };

  explicit StreamWriter(Options options);
  // Discards unwritten text. Does not wait for a blocked thread, which ends when its write returns or with the process.
  ~StreamWriter();
  StreamWriter(const StreamWriter&) = delete;
  StreamWriter& operator=(const StreamWriter&) = delete;

  // `text` consists of whole lines, unless it goes to a terminal. It is written in one piece if the kernel allows
  // (PIPE_BUF for a pipe), else line by line. Never blocks.
  void Write(absl::string_view text);

  // Bytes that are not written yet.
  size_t waiting_bytes();

  // Waits until everything is written; returns false if it is not by `deadline`.
  bool Flush(SteadyTime deadline);

 private:
  struct Shared;
  static void Run(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

// Writes all of `text`, blocking, in pieces of at most PIPE_BUF that end with a newline where possible. Returns 0 or an
// errno.
int WriteWhole(int fd, absl::string_view text);

// Writes all of `bytes`, in as many calls as that takes. Blocks, also if another process made the shared file
// non-blocking. Returns 0 or an errno.
int WriteAll(int fd, absl::string_view bytes);

}  // namespace ddprun

#endif  // DDPRUN_BASE_STREAM_WRITER_H_
