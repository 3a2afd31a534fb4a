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

// Writes text to a terminal, pipe or file from a thread of its own, so that nobody who has something to say waits for
// its reader: a terminal can be stopped (Ctrl-S) and a pipe full for as long as its reader likes.
//
// What waits to be written is bounded. Text that does not fit is dropped, and once half of the bound is free again a
// line in its place says how many lines are missing.
//
// Setting O_NONBLOCK would not do: it belongs to the open file, which the shell and the workers share. A logging
// library with a thread (spdlog) would not do either: at the end it joins a thread that may be blocked.
//
// Thread-safe.
class StreamWriter {
 public:
  struct Options {
    int fd = -1;  // not owned; stays open as long as the process lives
    size_t max_bytes = 0;
    // What to write in place of `lines` lines that were dropped, with a line end.
    std::function<std::string(int64_t lines)> gap;
    // Called once, from the writer's thread, when nobody can read `fd` any more (EPIPE); may be null. What is written
    // later goes nowhere.
    std::function<void(int error)> on_broken;
  };

  explicit StreamWriter(Options options);
  // Forgets what is not written yet. Does not wait for a thread that is blocked: that ends with the process, or when
  // its text is taken.
  ~StreamWriter();
  StreamWriter(const StreamWriter&) = delete;
  StreamWriter& operator=(const StreamWriter&) = delete;

  // `text` is whole lines, or goes to a terminal. It is written in one piece if the kernel allows that (PIPE_BUF for a
  // pipe), else line by line. Never blocks.
  void Write(absl::string_view text);

  // Waits until all is written; false if that is not so at `deadline`.
  bool Flush(SteadyTime deadline);

 private:
  struct Shared;
  static void Run(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

// Writes all of `text`, blocking, in pieces of at most PIPE_BUF that end with a line where possible. Returns 0 or an
// errno.
int WriteWhole(int fd, absl::string_view text);

}  // namespace ddprun

#endif  // DDPRUN_BASE_STREAM_WRITER_H_
