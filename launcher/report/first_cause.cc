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

namespace ddprun::launcher {
namespace {

// Messages of Gloo, NCCL, c10d and Python about a lost peer, in lower case.
constexpr absl::string_view kPeerErrors[] = {
    "connection reset",
    "connection closed",
    "connection refused",
    "connection aborted",
    "connection was broken",
    "broken pipe",
    "remote process exited",
    "nccl communicator was aborted",
    "socket timeout",
    "distbackenderror",
    "distnetworkerror",
    "diststoreerror",
    "wait timeout",
    "timed out waiting",
    "watchdog caught collective",
    "collective operation timeout",
    "peer closed",
    "no longer connected",
    "ncclremoteerror",
    "application timeout caused pair closure",
};

bool IsPeerError(const rendezvous::WorkerFailure& failure) {
  // Only the message counts: the last lines of the traceback repeat it, and earlier ones are code that may mention
  // anything.
  const std::string text = absl::AsciiStrToLower(failure.message());
  return std::any_of(std::begin(kPeerErrors), std::end(kPeerErrors),
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

FailureClass Classify(const FailureEvidence& evidence) {
  const rendezvous::WorkerFailure& failure = evidence.failure;
  if (evidence.stopped_by_us) return FailureClass::kStoppedByUs;
  if (!failure.restartable()) return FailureClass::kNotExecuted;
  if (failure.oom_killed()) return FailureClass::kOutOfMemory;
  if (failure.signal() != 0) return ClassifySignal(failure);
  if (IsPeerError(failure)) return FailureClass::kPeerError;
  return evidence.raised_at || !failure.traceback().empty() ? FailureClass::kOwnError : FailureClass::kUnclear;
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
