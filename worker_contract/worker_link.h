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
#include "worker_contract/environment.h"

// PURE: the messages of the worker link, as values and as lines (section numbers refer to docs/worker_protocol.md).
// Encode ends a line with '\n'; Decode takes one without it. Thread-safe.
namespace ddprun::worker_contract {

// Incremented when something is added. Meanings do not change (section 1).
inline constexpr int kLinkVersion = 3;
// Largest length of a line, including its end (section 1).
inline constexpr size_t kMaxLinkLine = 4096;
inline constexpr size_t kMaxPhaseBytes = 64;
inline constexpr size_t kMaxReasonBytes = 500;
inline constexpr size_t kMaxAddressBytes = 255;
inline constexpr size_t kMaxCapabilities = 16;
// Capabilities that a worker may announce (section 3.1).
inline constexpr char kCanReform[] = "re-form";         // keeps its process from round to round (section 5)
inline constexpr char kCanCheckpoint[] = "checkpoint";  // answers checkpoint-now
// Limit on a worker's reports, averaged over a second (section 3.3).
inline constexpr int kMaxReportsPerSecond = 500;

// ---- phases of a step that have a meaning to the launcher (section 3.2); a worker may report others ----

inline constexpr char kForwardPhase[] = "forward";
inline constexpr char kBackwardPhase[] = "backward";
inline constexpr char kOptimizerPhase[] = "optimizer";
// The ranks agree on stops, checkpoints and the like.
inline constexpr char kSyncPhase[] = "sync";
inline constexpr char kCheckpointPhase[] = "checkpoint";
inline constexpr char kEvaluationPhase[] = "evaluation";
// The training is over: no later activity of the worker, however long, counts as a hang.
inline constexpr char kFinishedPhase[] = "finished";
// The program has finished and only has to exit, with code 0.
inline constexpr char kExitingPhase[] = "exiting";

inline bool IsAfterTraining(absl::string_view phase) { return phase == kFinishedPhase || phase == kExitingPhase; }

// ---- worker -> launcher ----

// The first line of a connection (section 3.1).
struct LinkHello {
  static constexpr char kType[] = "hello";

  int version = kLinkVersion;
  int32_t local_rank = 0;
  int32_t rank = 0;
  int64_t pid = 0;
  std::vector<std::string> capabilities;

  friend bool operator==(const LinkHello&, const LinkHello&) = default;
};

// Training position of the worker (section 3.2).
struct LinkProgress {
  static constexpr char kType[] = "progress";

  int64_t step = 0;                // current step, as the worker counts steps; not negative
  std::optional<int64_t> samples;  // samples this rank has trained on; not negative
  std::string phase;               // "forward", "backward", "checkpoint" ...; empty: unknown
  std::optional<double> loss;      // may be infinite or NaN

  friend bool operator==(const LinkProgress&, const LinkProgress&) = default;
};

// The worker has left its process group and waits for re-form (section 5.2).
struct LinkSuspended {
  static constexpr char kType[] = "suspended";

  uint64_t round = 0;           // the round it left
  std::optional<int64_t> step;  // committed; unset: the worker holds no training state

  friend bool operator==(const LinkSuspended&, const LinkSuspended&) = default;
};

// The worker has the group and the training state of its round (section 5.3).
struct LinkReFormed {
  static constexpr char kType[] = "re-formed";

  uint64_t round = 0;
  int64_t step = 0;               // committed, on all ranks
  std::optional<int32_t> source;  // the rank that the state came from; unset: no rank held one

  friend bool operator==(const LinkReFormed&, const LinkReFormed&) = default;
};

// The worker has written a checkpoint (section 4.2).
struct LinkCheckpointed {
  static constexpr char kType[] = "checkpointed";

  int64_t step = 0;

  friend bool operator==(const LinkCheckpointed&, const LinkCheckpointed&) = default;
};

// The worker's process group failed without a `suspend`: it asks for a new round (section 5.4).
struct LinkFailed {
  static constexpr char kType[] = "failed";

  uint64_t round = 0;
  std::string message;

  friend bool operator==(const LinkFailed&, const LinkFailed&) = default;
};

// The first line of a connection on which a process answers the launcher's questions (section 7).
struct LinkProbe {
  static constexpr char kType[] = "probe";

  int version = kLinkVersion;
  int64_t pid = 0;

  friend bool operator==(const LinkProbe&, const LinkProbe&) = default;
};

using WorkerLinkMessage =
    std::variant<LinkHello, LinkProgress, LinkSuspended, LinkReFormed, LinkCheckpointed, LinkFailed, LinkProbe>;

// ---- launcher -> worker ----

// The worker is killed after `deadline`, measured from the line's arrival (section 4.1).
struct LinkStop {
  static constexpr char kType[] = "stop";

  absl::Duration deadline;
  std::string reason;  // one line

  friend bool operator==(const LinkStop&, const LinkStop&) = default;
};

// The worker writes a checkpoint if it can within `deadline`, and answers with `checkpointed` (section 4.2).
struct LinkCheckpointNow {
  static constexpr char kType[] = "checkpoint-now";

  absl::Duration deadline;

  friend bool operator==(const LinkCheckpointNow&, const LinkCheckpointNow&) = default;
};

// The round is over: the worker leaves its process group and answers with `suspended` (section 5.1).
struct LinkSuspend {
  static constexpr char kType[] = "suspend";

  uint64_t round = 0;            // the round that is over
  bool at_step_end = false;      // the step may be finished first
  std::string reason;            // one line
  std::optional<int32_t> blame;  // the rank that failed, if any

  friend bool operator==(const LinkSuspend&, const LinkSuspend&) = default;
};

// Assignment in the next round, for a suspended worker (section 5.3): what a new process reads from its environment.
struct LinkReForm : WorkerAssignment {
  static constexpr char kType[] = "re-form";

  int32_t role_rank = 0;
  int32_t role_world_size = 0;
  std::optional<int32_t> state_source;  // the rank with the newest training state; unset: no rank holds one
  std::optional<int64_t> state_step;    // its committed step; set if state_source is

  friend bool operator==(const LinkReForm&, const LinkReForm&) = default;
};

using LauncherLinkMessage = std::variant<LinkStop, LinkCheckpointNow, LinkSuspend, LinkReForm>;

// One line, at most kMaxLinkLine bytes: texts beyond their limits are truncated, and invalid UTF-8 is replaced.
std::string EncodeMessage(const WorkerLinkMessage& line);
std::string EncodeMessage(const LauncherLinkMessage& line);

// No value: the type is unknown to this build and to be ignored. InvalidArgument: the error, in one line that quotes no
// text of the input. Unknown fields are ignored. Texts are valid UTF-8, but may have control characters.
absl::StatusOr<std::optional<WorkerLinkMessage>> DecodeWorkerMessage(absl::string_view line);
absl::StatusOr<std::optional<LauncherLinkMessage>> DecodeLauncherMessage(absl::string_view line);

// Splits a stream of bytes into lines.
class LineReader {
 public:
  // Appends the lines that `bytes` completes, without their ends, to `lines`. InvalidArgument: a line is longer than
  // kMaxLinkLine; the lines before it have been appended, and nothing can be read after it.
  absl::Status Read(absl::string_view bytes, std::vector<std::string>* lines);

 private:
  std::string partial_;
};

}  // namespace ddprun::worker_contract

#endif  // DDPRUN_WORKER_CONTRACT_WORKER_LINK_H_
