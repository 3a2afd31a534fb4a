#include "launcher/report/first_cause.h"

#include <signal.h>

#include <algorithm>
#include <cassert>
#include <iterator>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "launcher/report/explain_end.h"

namespace ddprun::launcher {
namespace {

// Messages of Gloo, NCCL, c10d and the system about lost peers, and of their time-outs, aborts and revocations, which
// follow from another rank's failure. In lower case.
constexpr PeerError kPeerErrors[] = {
    // The worker runtime's own.
    {"aborted the group", kOfWorkerRuntime},
    {"exited or was killed; check its output", kOfWorkerRuntime},
    {"lost connection to", kOfWorkerRuntime},
    // The system's.
    {"broken pipe"},
    {"connection abort"},
    {"connection refused"},
    {"connection reset"},
    {"connection timed out"},
    // Python's types of exceptions.
    {"distbackenderror"},
    {"distnetworkerror"},
    {"diststoreerror"},
    // Gloo.
    {"application timeout caused pair closure"},
    {"connect timeout"},
    {"connection closed"},
    {"peer closed"},
    {"read timeout"},
    {"socket closed"},
    {"timed out connecting"},
    {"timed out waiting"},
    {"unexpectedly closed"},
    {"write timeout"},
    // The store.
    {"barrier timeout after", 15},
    {"client socket has timed out"},
    {"connection was likely closed"},
    {"failed to recv, got"},
    {"recvvalue failed"},
    {"recvvaluewithtimeout failed"},
    {"seconds waiting for clients"},
    {"sendbytes failed"},
    {"socket timeout"},
    {"tcp client failed to connect"},
    {"timeout waiting for key"},
    {"wait timeout"},
    {"waitforinput"},
    // Process groups and NCCL.
    {"collective operation timeout"},
    {"failed to pass monitoredbarrier"},
    {"nccl communicator was aborted"},
    {"nccl operations have failed or timed out", 0, true},
    {"nccl timeout"},
    {"ncclremoteerror"},
    {"operation timed out!"},
    {"remote process exited"},
    {"taking the entire process down", 0, true},
    {"timed out in blocking wait"},
    {"timed out in monitoredbarrier"},
    {"timeout at collective"},
    {"watchdog caught collective", 0, true},
    // nccl2.
    {"aborting process on rank", 15, true},
    {"collective operation timed out", 15},
    {"failed to initialize nccl communicator: timeout", 15},
    {"nccl abort failed", 15},
    {"nccl async error", 15},
    {"nccl commabort", 15},
    {"nccl commrevoke", 15},
    {"nccl communicator not initialized", 15},
    {"nccl hit async error", 15},
    {"nccl operation timed out", 15},
    {"nccl revoke failed", 15},
    {"watchdog detected operation timeout", 15},
    {"work timed out during finalize", 15},
};

// A store or a process group that can't listen fails by itself, with the type of exception that lost peers cause.
// A CUDA error of the device is the rank's own, even if NCCL or its watchdog reports it.
constexpr absl::string_view kOwnErrors[] = {"address already in use", "cuda error", "eaddrinuse", "failed to listen"};

bool IsPeerError(const rendezvous::WorkerFailure& failure) {
  // Only the message counts: the last lines of the traceback repeat it, and earlier ones are code that may mention
  // anything.
  const std::string text = absl::AsciiStrToLower(failure.message());
  return std::any_of(std::begin(kPeerErrors), std::end(kPeerErrors),
                     [&](const PeerError& error) { return absl::StrContains(text, error.text); }) &&
         std::none_of(std::begin(kOwnErrors), std::end(kOwnErrors),
                      [&](absl::string_view words) { return absl::StrContains(text, words); });
}

FailureClass ClassifySignal(const rendezvous::WorkerFailure& failure) {
  switch (failure.signal()) {
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
    case SIGQUIT: return FailureClass::kAskedToStop;
    case SIGPIPE: return FailureClass::kPeerError;
    case SIGABRT: return IsPeerError(failure) ? FailureClass::kPeerError : FailureClass::kUnclear;
    default: return FailureClass::kCrash;
  }
}

// Index of the best failure by rules 1, 3 and 4, which define a strict order.
size_t Best(absl::Span<const FailureEvidence> failures) {
  const auto key = [&](size_t i) {
    return std::make_tuple(Classify(failures[i]), failures[i].raised_at.value_or(absl::InfiniteFuture()), i);
  };
  size_t best = 0;
  for (size_t i = 1; i < failures.size(); ++i) {
    if (key(i) < key(best)) best = i;
  }
  return best;
}

}  // namespace

absl::Span<const PeerError> PeerErrors() { return kPeerErrors; }

FailureClass Classify(const FailureEvidence& evidence) {
  const rendezvous::WorkerFailure& failure = evidence.failure;
  if (evidence.stopped_by_us) return FailureClass::kStoppedByUs;
  if (!failure.restartable()) return FailureClass::kNotExecuted;
  if (failure.oom_killed()) return FailureClass::kOutOfMemory;
  if (failure.signal() != 0) return ClassifySignal(failure);
  if (IsPeerError(failure)) return FailureClass::kPeerError;
  const bool has_error = !failure.message().empty() && !absl::StartsWith(failure.message(), kLastLine);
  return evidence.raised_at || has_error ? FailureClass::kOwnError : FailureClass::kUnclear;
}

size_t ChooseFirstCause(absl::Span<const FailureEvidence> failures) {
  assert(!failures.empty());
  const size_t best = Best(failures);
  if (Classify(failures[best]) != FailureClass::kCrash || failures[best].raised_at) return best;
  // Rule 2. The margin of a second is there because timestamps are rounded down.
  std::optional<size_t> earlier;
  for (size_t i = 0; i < failures.size(); ++i) {
    const FailureEvidence& other = failures[i];
    if (Classify(other) != FailureClass::kOwnError || !other.raised_at) continue;
    if (*other.raised_at + absl::Seconds(1) >= ToTime(failures[best].failure.at())) continue;
    if (!earlier || *other.raised_at < *failures[*earlier].raised_at) earlier = i;
  }
  return earlier.value_or(best);
}

bool Caused(const FailureEvidence& later, const FailureEvidence& earlier) {
  return Classify(earlier) >= FailureClass::kPeerError && Classify(later) < Classify(earlier);
}

}  // namespace ddprun::launcher
