#ifndef DDPRUN_WORKER_CONTRACT_WORKER_LINK_H_
#define DDPRUN_WORKER_CONTRACT_WORKER_LINK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

// PURE: the messages of the worker link, as values and as lines (docs/worker_protocol.md gives the sections cited
// here). Encode ends a line with '\n'; Decode takes one without it. Thread-safe.
namespace ddprun::worker_contract {

// Grows when something is added. Meanings do not change (section 1).
inline constexpr int kLinkVersion = 2;
// Of a line, with its end (section 1).
inline constexpr size_t kMaxLinkLine = 4096;
inline constexpr size_t kMaxPhaseBytes = 64;
inline constexpr size_t kMaxReasonBytes = 500;
inline constexpr size_t kMaxAddressBytes = 255;
inline constexpr size_t kMaxCapabilities = 16;
// What a worker may say that it does with the link (section 3.1).
inline constexpr char kCanReform[] = "re-form";         // keeps its process from round to round (section 5)
inline constexpr char kCanCheckpoint[] = "checkpoint";  // answers checkpoint-now
// What a worker sends at most, averaged over a second (section 3.3).
inline constexpr int kMaxReportsPerSecond = 500;

// ---- worker -> launcher ----

// The first line of a connection (section 3.1).
struct LinkHello {
  int version = kLinkVersion;
  int32_t local_rank = 0;
  int32_t rank = 0;
  int64_t pid = 0;
  std::vector<std::string> capabilities;

  friend bool operator==(const LinkHello&, const LinkHello&) = default;
};

// Where the worker is (section 3.2).
struct LinkProgress {
  int64_t step = 0;                // that it is in, as it counts them; not negative
  std::optional<int64_t> samples;  // that this rank has trained on; not negative
  std::string phase;               // "forward", "backward", "checkpoint" ...; empty: not said
  std::optional<double> loss;      // may be infinite or NaN

  friend bool operator==(const LinkProgress&, const LinkProgress&) = default;
};

// It has left its process group and waits for re-form (section 5.2).
struct LinkSuspended {
  uint64_t round = 0;           // that it was in
  std::optional<int64_t> step;  // committed; unset: it holds no training state

  friend bool operator==(const LinkSuspended&, const LinkSuspended&) = default;
};

// It has the group and the training state of its round (section 5.3).
struct LinkReFormed {
  uint64_t round = 0;
  int64_t step = 0;               // committed, on all ranks
  std::optional<int32_t> source;  // the rank that the state came from; unset: no rank held one

  friend bool operator==(const LinkReFormed&, const LinkReFormed&) = default;
};

// It has written a checkpoint (section 4.2).
struct LinkCheckpointed {
  int64_t step = 0;

  friend bool operator==(const LinkCheckpointed&, const LinkCheckpointed&) = default;
};

// Its process group is broken though nobody told it: it asks for a new round (section 5.4).
struct LinkFailed {
  uint64_t round = 0;
  std::string message;

  friend bool operator==(const LinkFailed&, const LinkFailed&) = default;
};

using WorkerLine = std::variant<LinkHello, LinkProgress, LinkSuspended, LinkReFormed, LinkCheckpointed, LinkFailed>;

// ---- launcher -> worker ----

// The worker is killed when `deadline` has passed, counted from the line's arrival (section 4.1).
struct LinkStop {
  absl::Duration deadline;
  std::string reason;  // one line

  friend bool operator==(const LinkStop&, const LinkStop&) = default;
};

// The worker writes a checkpoint if it can within `deadline`, and says `checkpointed` (section 4.2).
struct LinkCheckpointNow {
  absl::Duration deadline;

  friend bool operator==(const LinkCheckpointNow&, const LinkCheckpointNow&) = default;
};

// The round is over: the worker leaves its process group and answers with `suspended` (section 5.1).
struct LinkSuspend {
  uint64_t round = 0;            // that is over
  bool at_step_end = false;      // the step may be finished first
  std::string reason;            // one line
  std::optional<int32_t> blame;  // the rank that failed, if one did

  friend bool operator==(const LinkSuspend&, const LinkSuspend&) = default;
};

// The next round, to a suspended worker (section 5.3): what a new process finds in its environment.
struct LinkReForm {
  uint64_t round = 0;
  int32_t rank = 0;
  int32_t world_size = 0;
  int32_t local_world_size = 0;
  int32_t group_rank = 0;
  int32_t group_world_size = 0;
  int32_t role_rank = 0;
  int32_t role_world_size = 0;
  std::string master_addr;
  int32_t master_port = 0;
  int32_t restart_count = 0;
  std::optional<int32_t> state_source;  // the rank with the newest training state; unset: nobody holds one
  std::optional<int64_t> state_step;    // its committed step; set if the source is

  friend bool operator==(const LinkReForm&, const LinkReForm&) = default;
};

using LauncherLine = std::variant<LinkStop, LinkCheckpointNow, LinkSuspend, LinkReForm>;

// One line, at most kMaxLinkLine bytes: texts beyond their limits are cut, and invalid UTF-8 is replaced.
std::string EncodeLine(const WorkerLine& line);
std::string EncodeLine(const LauncherLine& line);

// No value: a type that this build does not know, to be ignored. InvalidArgument: what is wrong with the line, in one
// line without any text of it. Unknown fields are ignored. Texts are valid UTF-8, but may have control characters.
absl::StatusOr<std::optional<WorkerLine>> DecodeWorkerLine(absl::string_view line);
absl::StatusOr<std::optional<LauncherLine>> DecodeLauncherLine(absl::string_view line);

// Cuts a stream of bytes into lines.
class LineReader {
 public:
  // Appends the lines that `bytes` completes, without their ends, to `lines`. InvalidArgument: a line is longer than
  // kMaxLinkLine; those before it have been appended, and nothing can be read after it.
  absl::Status Read(absl::string_view bytes, std::vector<std::string>* lines);

 private:
  std::string partial_;
};

}  // namespace ddprun::worker_contract

#endif  // DDPRUN_WORKER_CONTRACT_WORKER_LINK_H_
