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

// Appends every event of a log to a file, one line each, on its own thread, within 50 ms; events that occur close
// together are written together. Restored events that a killed server had not written yet are written first: those that
// are later than the first line of the file's tail and not among its lines. Events that cannot be written (disk full)
// are lost and counted; the server's log reports it once, and again when writing resumes. Thread-safe.
class EventFile {
 public:
  // Creates the file if necessary. The log already has its restored events, and outlives the result.
  //   INVALID_ARGUMENT  the file cannot be opened; the message says why.
  static absl::StatusOr<std::unique_ptr<EventFile>> Open(const std::string& path, EventLog* log);

  // Writes the events still pending.
  ~EventFile();

  // Makes the thread reopen the path soon, after the file was moved away (log rotation).
  void Reopen() ABSL_LOCKS_EXCLUDED(mutex_);

  // Number of lines that could not be written.
  uint64_t lost() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  EventFile(const std::string& path, int fd, EventLog* log);

  void Wake();
  void Run();
  // Writes restored events that are missing from the file.
  void WriteMissing();
  // Writes all new events.
  void WriteNew();
  // Writes whole lines; counts those that could not be written.
  void Write(const std::string& lines);
  void ReopenNow();
  void CountLost(uint64_t lines, const std::string& why) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string path_;
  EventLog* const log_;
  int fd_;                // writer thread only; -1: could not be opened
  uint64_t written_;      // writer thread only: number of the last event read
  bool failing_ = false;  // writer thread only
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
