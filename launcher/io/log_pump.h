#ifndef DDPRUN_LAUNCHER_IO_LOG_PUMP_H_
#define DDPRUN_LAUNCHER_IO_LOG_PUMP_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "launcher/io/file_descriptor.h"

// The output of workers on its way to log files and the console: LogPump moves the bytes, LinePrefixer splits them into
// lines with the prefixes of their ranks, PipeTail keeps the last of them for failure summaries and `ddprunctl logs`.
namespace ddprun::launcher {

// Splits a stream of bytes into lines and prefixes each directly before its first byte, as torchrun does. Only complete
// lines are output, so that lines of several streams don't mix. A carriage return also ends a line (for progress bars),
// and a line feed directly after it belongs to the same line. Invalid text is passed through. Pure; thread-compatible.
class LinePrefixer {
 public:
  static constexpr size_t kMaxLine = size_t{4} << 20;

  // A line of more than `max_line` bytes is output as several lines, to bound memory. `time` returns the replacement
  // for each "${time}" (kTimeMacro of output_settings.h) in the prefix, per line; if null, macros are kept.
  explicit LinePrefixer(std::string prefix, size_t max_line = kMaxLine, std::function<std::string()> time = nullptr);

  // Lines whose text, without the prefix, contains one of `filters` are also output to `matching`.
  void SetFilters(std::vector<std::string> filters) { filters_ = std::move(filters); }

  // Consumes `bytes` and appends all lines that are now complete to `out`.
  void Feed(absl::string_view bytes, std::string* out, std::string* matching = nullptr);

  // Ends the stream: appends the remaining bytes with a line end.
  void Finish(std::string* out, std::string* matching = nullptr);

 private:
  // Appends the buffered start of a line and `rest` of it.
  void Emit(absl::string_view rest, std::string* out, std::string* matching);

  const std::string prefix_;
  const size_t max_line_;
  const std::function<std::string()> time_;  // null: the prefix is the same for all lines
  std::vector<std::string> filters_;
  std::string line_;           // start of an incomplete line, at most max_line_ bytes
  bool after_return_ = false;  // the last byte was a carriage return
  bool matched_ = false;       // the last line contained a filter
};

// At most this many bytes of the end of a worker's output are in a failure summary.
inline constexpr size_t kOutputTailBytes = 8192;

// The end of what was written to a pipe. Thread-safe: one thread reads the pipe, another may ask for the text at any
// time and never waits for the first, which may be blocked elsewhere.
class PipeTail {
 public:
  static constexpr size_t kKeptBytes = 128 << 10;  // at least; at most twice as many

  // `pipe` is the read end, non-blocking; it must stay open until End.
  explicit PipeTail(int pipe) : pipe_(pipe) {}

  // Like read(2), but also keeps the bytes.
  ssize_t Read(char* buffer, size_t size);
  // Call before the pipe is closed.
  void End();

  // Returns the last bytes that were written, at most `max`, including those that have not been read yet, without the
  // rest of a line that this cuts, unless there is no other line.
  std::string Text(size_t max = kOutputTailBytes) const;

  // Number of bytes that were read.
  uint64_t end() const;
  // Returns at most `max` of the kept bytes from position `from` on, or from the first one that is kept; `begin`
  // receives the position of the first one returned.
  std::string From(uint64_t from, size_t max, uint64_t* begin) const;
  // Position of the first byte that was read at or after `time`, or up to a second before.
  uint64_t Since(SteadyTime time) const;

 private:
  mutable Mutex mutex_;
  int pipe_ ABSL_GUARDED_BY(mutex_);  // -1 after End
  std::string kept_ ABSL_GUARDED_BY(mutex_);
  uint64_t end_ ABSL_GUARDED_BY(mutex_) = 0;
  // Positions and when bytes were read there, at least a second apart.
  std::deque<std::pair<SteadyTime, uint64_t>> times_ ABSL_GUARDED_BY(mutex_);
};

// Returns the last kOutputTailBytes of this file beyond offset `from`, cut like PipeTail::Text; empty if it can't be
// read.
std::string ReadFileTail(const std::string& path, int64_t from);

// Destinations of one output stream of one worker. A stream that goes only to a file or directly to the launcher's own
// stream needs no pump: the worker gets the file (OpenLogFile) or that stream.
struct LogSink {
  struct File {
    UniqueFd fd;       // not valid: no file
    std::string name;  // for messages
  };
  File file;            // receives the bytes unchanged
  int console_fd = -1;  // receives whole lines with `prefix`; not owned; -1: no console
  std::string prefix;   // "[default0]:"; "${time}" in it stands for the time of each line (UTC)
  std::vector<std::string> filters;
  File filtered;  // receives the console lines that contain one of `filters`
  // `file` is the launcher's own stream. If it is closed, the worker's stream is closed, too.
  bool passes_on = false;
};

// Copies the output of workers from pipes to log files and the console.
//
// It has a thread for log files, one per console, and one for streams that are passed on. A console may block for any
// time (Ctrl-S, a pager, a full pipe) without blocking the launcher's loop, the workers or the log files. Up to
// kConsoleBytes are buffered for it; further output is dropped, and when the console is read again, a line reports the
// number of missing lines. Log files receive every byte: a worker blocks only if its file can't be written fast enough.
// The threads sleep while there is no output, and are started by the first Add.
//
// A log file that can't be written (disk full) is reported once and retried with later output, while the console
// continues. A console that is closed (`ddprun | head`) is reported once, while files continue. Workers are not
// affected by either. Streams that are passed on block the worker as the launcher's own stream would, and lose nothing.
//
// Not thread-safe: all calls must come from the launcher's thread.
class LogPump {
 public:
  static constexpr size_t kConsoleBytes = 8 << 20;

  LogPump();
  // Like Drain with an expired deadline.
  ~LogPump();
  LogPump(const LogPump&) = delete;
  LogPump& operator=(const LogPump&) = delete;

  // Returns the write end of a new pipe (close-on-exec) to be a worker's stdout or stderr; close it after the spawn.
  // The stream ends when all processes have closed that end. Ended streams need no further call, so a restart can add
  // new streams immediately. `tail` receives the end of the stream's output. FailedPrecondition after Drain.
  absl::StatusOr<UniqueFd> Add(LogSink sink, std::shared_ptr<PipeTail>* tail = nullptr);

  // Call at the end, after the workers have exited: waits until all their output is written. Waits until `deadline` for
  // processes that still hold a pipe open (grandchildren) and for a console that is not read; then writes as much as
  // possible without blocking. Returns true if all streams ended and everything was written.
  bool Drain(SteadyTime deadline);

 private:
  struct Shared;
  class Pump;
  struct Lane {
    // Shared with the thread, which is detached if it is blocked in a write to a file.
    std::shared_ptr<Shared> shared;
    std::thread thread;
  };
  static bool DrainLane(Lane* lane, SteadyTime deadline);

  Lane lines_, passed_on_;
  bool drained_ = false;
};

// Opens a log file for appending, and creates it if needed. Errors name the file and say what to do.
absl::StatusOr<UniqueFd> OpenLogFile(const std::string& path);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_IO_LOG_PUMP_H_
