#ifndef DDPRUN_LAUNCHER_REPORT_FIRST_CAUSE_H_
#define DDPRUN_LAUNCHER_REPORT_FIRST_CAUSE_H_

#include <cstddef>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// A worker's failure with the evidence for telling causes from consequences.
struct FailureEvidence {
  rendezvous::WorkerFailure failure = rendezvous::NewFailure();
  std::optional<absl::Time> raised_at;  // timestamp in the error file: whole seconds, rounded down
  bool stopped_by_us = false;           // the launcher had signalled it
};

// Part of a message that reports lost peers, in lower case.
struct PeerError {
  absl::string_view text;
  int since = 0;             // minor version of PyTorch 2 whose libraries are known to have it; 0: all supported ones
  bool by_watchdog = false;  // printed by the watchdog of an NCCL group, which then ends the process by SIGABRT
};
inline constexpr int kOfWorkerRuntime = -1;  // in place of a version
// All of them; a test compares them with the texts of the installed libraries.
absl::Span<const PeerError> PeerErrors();

// How likely a failure is the cause of others found with it: smaller values are likelier.
enum class FailureClass {
  kNotExecuted,  // its program could not be executed, or it exited as non-restartable
  kOutOfMemory,  // killed by the kernel's OOM killer
  kCrash,        // a signal caused by the program itself, or SIGKILL from outside
  kOwnError,     // exited, with an error of its own in the error file or on stderr
  kUnclear,      // exited with a code only, or by SIGABRT (NCCL's watchdog aborts when a peer fails)
  kPeerError,    // its error reports lost peers (connection reset, collective timeout); SIGPIPE
  kAskedToStop,  // SIGTERM, SIGINT, SIGHUP, SIGQUIT from outside the launcher
  kStoppedByUs,  // stopped by the launcher
};
FailureClass Classify(const FailureEvidence& evidence);

// Chooses the first cause among failures of one host that were found at the same instant, so that their order of
// discovery is meaningless. Rules, in order:
//   1. the smallest FailureClass
//   2. an own error raised more than a second before a crash was seen precedes that crash, which may be a consequence
//      of the first worker's end
//   3. the earlier error file timestamp; failures with a timestamp precede those without
//   4. the order given
// Returns an index. REQUIRES: `failures` is not empty.
size_t ChooseFirstCause(absl::Span<const FailureEvidence> failures);

// True if `later` caused `earlier` although it was found later: `earlier` is of a kind that follows from other failures
// (lost peers, asked to stop) and `later` is of a likelier class.
bool Caused(const FailureEvidence& later, const FailureEvidence& earlier);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_FIRST_CAUSE_H_
