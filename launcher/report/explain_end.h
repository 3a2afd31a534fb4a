#ifndef DDPRUN_LAUNCHER_REPORT_EXPLAIN_END_H_
#define DDPRUN_LAUNCHER_REPORT_EXPLAIN_END_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "rendezvous/core/messages.h"

// Why a worker ended: ExplainEnd completes its failure with what stderr and the kernel tell, and NetworkHint gives
// advice on a failure of the network of NCCL, RCCL, HCCL or oneCCL.
namespace ddprun::launcher {

// The end of a worker's output as a person would read it on a terminal, safe to display and send.
struct LastLines {
  static constexpr size_t kMaxLines = 20;
  static constexpr size_t kMaxLineBytes = 300;

  std::string text;   // the last lines that are not blank, without a final line end; empty: there were none
  std::string error;  // the last line of the text that reports an error, without indentation; empty: none does
  std::string last;   // the last line of the text, without indentation
};

// Removes escape sequences (colors), keeps the last state of a line that was overwritten (progress bars), replaces
// invalid UTF-8, and finds the error: the last line that is not indented, as frames of a stack are, and has a word like
// "error". Warnings, Python's "Exception ignored in", and lines that contain `known` do not count.
LastLines ReadLastLines(absl::string_view bytes, absl::string_view known = "");

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
// process that the worker started, is completed by that error; an abort by NCCL's watchdog, by the watchdog's line. A
// failure without a traceback has the end of stderr instead, unless the message has all of it.
void ExplainEnd(const EndEvidence& evidence, rendezvous::WorkerFailure* failure);

// Adds why the worker could not leave an error file; its output may be incomplete for the same reason.
void ExplainNoErrorFile(const absl::Status& why, rendezvous::WorkerFailure* failure);

// Returns advice on the network, in one line, if the failure's message or traceback shows that the communication
// library of the workers' devices could not use it; else "". `interface`: the one over which this node's launcher talks
// to the others; empty if unknown.
std::string NetworkHint(const rendezvous::WorkerFailure& failure, absl::string_view interface);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_EXPLAIN_END_H_
