#ifndef DDPRUN_LAUNCHER_REPORT_ERROR_FILE_FORMAT_H_
#define DDPRUN_LAUNCHER_REPORT_ERROR_FILE_FORMAT_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// A shell reads no more than this of an error file: what is longer was not written by an error handler.
inline constexpr int kMaxErrorFileBytes = 1024 * 1024;
inline constexpr int kMaxErrorMessageBytes = 1000;

// A worker's last words, fit to be shown and sent: valid UTF-8 without control characters, bounded.
struct WorkerError {
  std::string message;                  // one line, at most kMaxErrorMessageBytes; empty if the file says nothing
  std::string traceback;                // at most rendezvous::kMaxTracebackBytes; empty if there is none
  std::optional<absl::Time> raised_at;  // by the worker's clock, in whole seconds

  friend bool operator==(const WorkerError&, const WorkerError&) = default;
};

// Reads the content of TORCHELASTIC_ERROR_FILE. Known are
//   {"message": {"message": "<Type>: <text>", "extraInfo": {"py_callstack": "...", "timestamp": "1700000000"}}}
//   {"message": "<text>", "timestamp": 1700000000}
// (the timestamp being a number or a string in both). Anything else, and a file that was cut off in the middle of
// being written, counts as raw text: its last line is the message, all of it the traceback. Never throws.
WorkerError ParseErrorFile(absl::string_view content);

// The content of an error file that tells `failure`, in the first of these forms, with torchrun's `errorCode`: for who
// started this launcher as a worker of his own.
std::string FormatErrorFile(const rendezvous::WorkerFailure& failure);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_ERROR_FILE_FORMAT_H_
