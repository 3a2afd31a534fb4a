#ifndef DDPRUN_LAUNCHER_OS_LOG_PUMP_H_
#define DDPRUN_LAUNCHER_OS_LOG_PUMP_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "launcher/os/unique_fd.h"
#include "rendezvous/base/steady_time.h"

namespace ddprun::launcher {

// Where the output of one stream of one worker goes. "File only" and "untouched" need no pump: there the worker
// gets the file (OpenLogFile) or the launcher's own stream directly.
struct LogSink {
  UniqueFd file;          // gets the bytes as they are; not valid: no file
  std::string file_name;  // for messages
  int console_fd = -1;    // gets whole lines with `prefix`; not owned; -1: no console
  std::string prefix;     // "[default0]:"
};

// Carries the output of workers from pipes to log files and the console.
//
// It has a thread of its own, and one for each console. A console can stop taking output for as long as it likes
// (Ctrl-S, a pager, a full pipe); neither the launcher's loop nor the workers nor the log files wait for it. Up to
// kConsoleBytes are kept for it; what comes after that is not shown, and once it reads again a line says how many lines
// are missing. Log files get every byte: a worker only waits where its file can't be written fast enough.
// The threads sleep when there is no output, and are only started by the first Add.
//
// A log file that can't be written (disk full) is reported once and tried again with later output; the console goes
// on. A console that is gone (`ddprun | head`) is reported once; files go on. Workers notice neither.
//
// Not thread-safe: one thread, the launcher's, makes all calls.
class LogPump {
 public:
  static constexpr size_t kConsoleBytes = 8 << 20;

  LogPump();
  // As Drain with no time left.
  ~LogPump();
  LogPump(const LogPump&) = delete;
  LogPump& operator=(const LogPump&) = delete;

  // Returns the end of a new pipe (close-on-exec) that is to become a worker's standard output or error; close it
  // after the spawn. The stream ends when all who hold that end are gone; what has ended needs no further call, so
  // a restart can add the streams of its new workers at once. FailedPrecondition after Drain.
  absl::StatusOr<UniqueFd> Add(LogSink sink);

  // For the end, when the workers are dead: waits until everything they wrote is written. Processes that hold a
  // pipe open beyond its worker's death (grandchildren), and a console that takes nothing, are waited for until
  // `deadline`; then what is there is still written as far as that goes at once. Returns whether all streams ended and
  // all was written.
  bool Drain(SteadyTime deadline);

 private:
  struct Shared;
  class Pump;

  // Shared with the thread, which is left behind if it can't be got out of a write to a stuck file.
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
  bool drained_ = false;
};

// Opens a log file for appending, and creates it if it is not there: a later round of the same attempt adds to it.
// The status names the file and says what to do.
absl::StatusOr<UniqueFd> OpenLogFile(const std::string& path);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_LOG_PUMP_H_
