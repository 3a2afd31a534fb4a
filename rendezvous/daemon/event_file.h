#ifndef DDPRUN_RENDEZVOUS_DAEMON_EVENT_FILE_H_
#define DDPRUN_RENDEZVOUS_DAEMON_EVENT_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "rendezvous/server/event_log.h"

namespace ddprun::rendezvous {

// Writes every event of a log to the end of a file, a line each, on a thread of its own, after 50 ms at most: those
// that come close together are written together. Restored events that a killed server had not written yet are written
// first: those that are later than the first line of the file's end, and not among its lines. What can't be written
// (the disk is full) is lost, counted, and said once in the server's log, and once more when lines are written again.
// Thread-safe.
class EventFile {
 public:
  // The file is created if need be. The log has its restored events, and outlives the result.
  //   INVALID_ARGUMENT  it can't be opened; the text says why.
  static absl::StatusOr<std::unique_ptr<EventFile>> Open(const std::string& path, EventLog* log);

  // Writes what the log has.
  ~EventFile();

  // Opens the path anew, soon: somebody has moved the file away.
  void Reopen() ABSL_LOCKS_EXCLUDED(mutex_);

  // Lines that could not be written.
  uint64_t lost() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  EventFile(const std::string& path, int fd, EventLog* log);

  void Wake();
  void Run();
  // Restored events that the file lacks.
  void WriteMissing();
  // Writes all that is new.
  void WriteNew();
  // Whole lines; counts those that could not be written.
  void Write(const std::string& lines);
  void ReopenNow();
  void CountLost(uint64_t lines, const std::string& why) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string path_;
  EventLog* const log_;
  int fd_;                // of the thread; -1: it could not be opened
  uint64_t written_;      // of the thread: the number of the last event that was read
  bool failing_ = false;  // of the thread
  mutable Mutex mutex_;
  CondVar changed_;
  bool new_events_ ABSL_GUARDED_BY(mutex_) = false;
  bool reopen_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t lost_ ABSL_GUARDED_BY(mutex_) = 0;
  EventLog::Watch watch_;
  std::thread thread_;  // last: started when all else exists
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_DAEMON_EVENT_FILE_H_
