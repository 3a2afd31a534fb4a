#ifndef DDPRUN_LAUNCHER_REPORT_FIRST_CAUSE_H_
#define DDPRUN_LAUNCHER_REPORT_FIRST_CAUSE_H_

#include <cstddef>
#include <optional>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// A worker's end with what helps to tell causes from consequences.
struct FailureEvidence {
  rendezvous::WorkerFailure failure;
  std::optional<absl::Time> raised_at;  // the error file's timestamp: whole seconds, rounded down
  bool stopped_by_us = false;           // the launcher had sent it a signal
};

// How likely a failure is the cause of the others that were seen with it: the smaller, the likelier.
enum class FailureClass {
  kNotExecuted,  // its program could not be executed, or said that starting it again is no use
  kOutOfMemory,  // the kernel killed it for memory
  kCrash,        // a signal that a program gets for its own fault, or SIGKILL from outside
  kOwnError,     // exited, with an error of its own in the error file
  kUnclear,      // exited with a code and no words, or by SIGABRT (NCCL's watchdog aborts when a peer fails)
  kPeerError,    // its error says that it lost its peers: connection reset, timeout of a collective; SIGPIPE
  kAskedToStop,  // SIGTERM, SIGINT, SIGHUP, SIGQUIT that somebody else sent
  kStoppedByUs,  // by the launcher
};
FailureClass Classify(const FailureEvidence& evidence);

// The first cause among failures of one host that were found in the same instant, when the order of finding says
// nothing. Rules, in this order:
//   1. the smallest FailureClass
//   2. an own error that was raised more than a second before a crash was seen comes before that crash: the
//      crash may be what the first one's end did to the second
//   3. the earlier error file timestamp; one with a timestamp before one without
//   4. the order given
// Returns an index. REQUIRES: `failures` is not empty.
size_t ChooseFirstCause(absl::Span<const FailureEvidence> failures);

// Whether `later`, which was found some time after `earlier`, is nevertheless what caused it: only if the earlier one
// is of a kind that follows from others (it lost its peers, or was asked to stop) and the later one is less so.
bool Caused(const FailureEvidence& later, const FailureEvidence& earlier);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_FIRST_CAUSE_H_
