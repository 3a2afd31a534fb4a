#ifndef DDPRUN_LAUNCHER_REPORT_ERROR_FILE_FORMAT_H_
#define DDPRUN_LAUNCHER_REPORT_ERROR_FILE_FORMAT_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// Shells read at most this much of an error file. Larger files were not written by an error handler.
inline constexpr int kMaxErrorFileBytes = 1024 * 1024;
inline constexpr int kMaxErrorMessageBytes = 1000;

// A worker's error, safe to display and send: valid UTF-8 without control characters, bounded.
struct WorkerError {
  std::string message;                  // one line, at most kMaxErrorMessageBytes; may be empty
  std::string traceback;                // at most rendezvous::kMaxTracebackBytes; may be empty
  std::optional<absl::Time> raised_at;  // time of the worker's clock, whole seconds

  friend bool operator==(const WorkerError&, const WorkerError&) = default;
};

// Parses the content of TORCHELASTIC_ERROR_FILE in one of the forms
//   {"message": {"message": "<Type>: <text>", "extraInfo": {"py_callstack": "...", "timestamp": "1700000000"}}}
//   {"message": "<text>", "timestamp": 1700000000}
// where the timestamp is a number or a string. Anything else, including a truncated file, is raw text: its last line is
// the message, all of it the traceback. Never throws.
WorkerError ParseErrorFile(absl::string_view content);

// Formats `failure` as an error file in the first of these forms, with torchrun's `errorCode`, for the caller of this
// launcher: a parent launcher that runs it as a worker, or a Python program. `extraInfo` names the worker.
std::string FormatErrorFile(const rendezvous::WorkerFailure& failure);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_ERROR_FILE_FORMAT_H_
