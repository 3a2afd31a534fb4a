#ifndef DDPRUN_LAUNCHER_CONFIG_FLAG_VALUE_H_
#define DDPRUN_LAUNCHER_CONFIG_FLAG_VALUE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "rendezvous/core/limits.h"

// The types of plain flag values, and their parsers: numbers, durations, names, counts of nodes and workers, ports,
// signals, the policy for hangs. Every error of a parser is InvalidArgument with one line that does not name the flag;
// the caller, which knows the source of the text, prepends that.
namespace ddprun::launcher {

// Parses an integer from `min` to `max`, both inclusive.
absl::StatusOr<int64_t> ParseInteger(absl::string_view text, int64_t min, int64_t max);

// Parses a number of seconds such as "30" or "0.5", at least zero and at most kMaxSeconds. Fractions of a nanosecond
// are dropped, as in messages, so that nodes with the same flag have the same value wherever the server runs.
absl::StatusOr<absl::Duration> ParseSeconds(absl::string_view text);
inline constexpr double kMaxSeconds = 1e8;

// Like ParseSeconds, but zero is an error as well.
absl::StatusOr<absl::Duration> ParsePositiveSeconds(absl::string_view text);

// Accepts 0/1, true/false, t/f, yes/no, y/n in any case.
absl::StatusOr<bool> ParseBool(absl::string_view text);

// Parses a user-chosen name (job id, role): not empty, at most 256 bytes, valid UTF-8, no control characters.
absl::StatusOr<std::string> ParseName(absl::string_view text);

inline constexpr int kMaxNodes = rendezvous::kMaxNodes;
inline constexpr int kMaxProcesses = rendezvous::kMaxSlots;  // per node

// Number of nodes of a job: 0 < min <= max <= kMaxNodes.
struct NodeCount {
  int min = 1;
  int max = 1;
  // "2" or "1:4".
  std::string ToString() const;
  friend bool operator==(const NodeCount&, const NodeCount&) = default;
};

// Parses "N" or "MIN:MAX".
absl::StatusOr<NodeCount> ParseNodeCount(absl::string_view text);

// Number of workers of one node: a number, or one per device of the node.
struct ProcessCount {
  enum class Kind {
    kNumber,
    kCpu,     // processors that the launcher may use
    kDevice,  // accelerators of one kind; an error if the node has none
    kAuto,    // accelerators if there are any, else processors
  };
  Kind kind = Kind::kNumber;
  int number = 1;      // if kNumber: 1 to kMaxProcesses
  std::string device;  // if kDevice: "gpu", "xpu", "hpu" or "npu" (kVendors of visible_devices.h)
  friend bool operator==(const ProcessCount&, const ProcessCount&) = default;
};

// Parses a number, "cpu", "auto", or the word of an accelerator.
absl::StatusOr<ProcessCount> ParseProcessCount(absl::string_view text);

// TCP ports first to last: 1 <= first <= last <= 65535.
struct PortRange {
  int first = 1;
  int last = 65535;
  bool Has(int port) const { return first <= port && port <= last; }
  // "20000-20100".
  std::string ToString() const;
  friend bool operator==(const PortRange&, const PortRange&) = default;
};

// Parses FIRST-LAST or FIRST:LAST.
absl::StatusOr<PortRange> ParsePortRange(absl::string_view text);

// Returns the parts of `range` in which to look for a port for a new store, in this order; no part is empty. The search
// starts above `last_store`, the port of the previous store (0: none), and tries that port last, so that clients of the
// previous store do not reach the new one. `reserved`, the port of the endpoint, is excluded.
std::vector<PortRange> StorePorts(const PortRange& range, int reserved, int last_store);

// Parses the names of signals on which the launcher stops the job: "SIGTERM,SIGUSR1". Duplicates are ignored. An error
// is also a signal that can't be handled (SIGKILL, SIGSTOP), means a crash of the launcher itself, or is used by the
// launcher internally (SIGCHLD).
absl::StatusOr<std::vector<int>> ParseSignals(absl::string_view text);

// The inverse of ParseSignals: names joined by commas.
std::string SignalNames(absl::Span<const int> signals);

// Handling of workers that report progress and hang (launcher/progress).
struct HangPolicy {
  bool watch = true;
  absl::Duration fixed_limit;  // limit of one phase; zero: limits are learned
  bool restart = false;        // a hung worker is killed and counts as failed

  friend bool operator==(const HangPolicy&, const HangPolicy&) = default;
};

// Parses the value of --on-hang: "report" or "restart", with ":SECONDS" for a fixed limit; 0 seconds: nothing is
// watched.
absl::StatusOr<HangPolicy> ParseHangPolicy(absl::string_view text);

// "report", "restart, limit 1m30s" or "none".
std::string HangPolicyText(const HangPolicy& policy);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_FLAG_VALUE_H_
