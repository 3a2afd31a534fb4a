#ifndef DDPRUN_LAUNCHER_IO_LOG_PUMP_H_
#define DDPRUN_LAUNCHER_IO_LOG_PUMP_H_

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/steady_time.h"
#include "launcher/io/output_tail.h"
#include "launcher/io/unique_fd.h"

namespace ddprun::launcher {

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
