#ifndef DDPRUN_LAUNCHER_REPORT_EXPLAIN_END_H_
#define DDPRUN_LAUNCHER_REPORT_EXPLAIN_END_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// Evidence about a worker's end besides its exit status and its error file.
struct EndEvidence {
  std::string output;     // the last bytes that it wrote to stderr
  std::string oom_kills;  // one line about the kernel's OOM kills while it ran; empty: none
  bool core_dumped = false;
};

// A message that starts with this quotes the last line of stderr, which need not be about the failure.
inline constexpr absl::string_view kLastLine = "last line of stderr: ";
inline constexpr absl::string_view kCoreDumped = "core dumped";  // part of the message, or all of it

// Completes `failure`, which has the exit status and the texts of the error file. Without the latter the message is the
// error at the end of stderr; for a signal, only if the program itself caused the signal. An abort, or the failure of a
// process that the worker started, is completed by that error. A failure without a traceback has the end of stderr
// instead, unless the message has all of it.
void ExplainEnd(const EndEvidence& evidence, rendezvous::WorkerFailure* failure);

// Adds why the worker could not leave an error file; its output may be incomplete for the same reason.
void ExplainNoErrorFile(const absl::Status& why, rendezvous::WorkerFailure* failure);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_EXPLAIN_END_H_
