#ifndef DDPRUN_LAUNCHER_HANG_JUDGE_H_
#define DDPRUN_LAUNCHER_HANG_JUDGE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "launcher/hang/rank_state.h"
#include "proto/hang.pb.h"

// PURE. Decides from the evidence of all ranks which of them keeps the others waiting.
//
// A rank that has entered a collective waits for the members of the group that have not. Ranks that are waited for and
// wait for no rank themselves are odd ("behind"). Where all members have entered it, they may have entered different
// operations ("differ": the minority is odd, or the side that departs from what the ranks did before); otherwise a rank
// is stopped, a connection is broken, or the operation itself does not end ("inside"). Ranks of which
// nothing is known are named as unknown and never blamed.
namespace ddprun::launcher {

// The latest evidence of each node. Ranks that are absent are unknown, as are ranks with only a number.
struct JobEvidence {
  int32_t world_size = 0;
  int32_t node_count = 1;
  std::vector<hang::v1::NodeEvidence> nodes;
};

// A connection on which sent data is not acknowledged.
struct BrokenLink {
  int32_t from = 0;
  int32_t to = -1;   // -1: no known rank
  std::string peer;  // "ADDRESS:PORT"
  uint32_t retransmits = 0;
  absl::Duration silent;  // time since data was received
};

struct Verdict {
  enum class Kind {
    kBehind,   // `odd` have not entered the operation in which `waiting` wait
    kDiffer,   // `odd` entered another operation or other tensors
    kCycle,    // `odd` wait for each other
    kStopped,  // `odd` are stopped (SIGSTOP) inside the operation
    kEnded,    // `odd` have ended
    kLink,     // data does not arrive between `odd`
    kInside,   // all known members are in the operation, which does not end
    kIdle,     // all ranks are idle, none is in a collective
  };
  Kind kind = Kind::kInside;
  RankState::Activity activity =
      RankState::Activity::kIdle;          // activity of the odd ranks; kDebugger if any rank is debugged
  std::vector<int32_t> odd;                // sorted, as the others
  std::vector<int32_t> waiting;            // ranks that wait for them in this operation
  std::vector<int32_t> waiting_elsewhere;  // ranks that wait for them in other operations
  std::vector<int32_t> unknown;            // ranks of which nothing is known
  std::string operation;  // the one in which the others wait: "all_reduce #41 (Float[10])"; empty: not recorded
  int64_t number = 0;     // its number
  std::string group;
  std::map<int32_t, std::string>
      details;  // phrases about the first odd ranks, or those that have left: "sleeps at train.py:31 in load"
  std::vector<BrokenLink> links;
  absl::Duration timeout;               // timeout of the operation; zero: unknown
  std::optional<absl::Duration> left;   // time until it ends the job
  std::vector<int32_t> replaceable;     // odd ranks of which it is certain that they are at fault, and idle
  std::optional<std::string> mismatch;  // text of an earlier mismatch, which may be the cause

  // True if both name the same ranks for the same kind of fault.
  bool SameFault(const Verdict& other) const { return kind == other.kind && odd == other.odd; }
};

// Returns nullopt if no rank waits for another. Linear in the evidence, but for sorting.
std::optional<Verdict> Judge(const JobEvidence& job);

// Returns the lines of a report. The first one names who waits for whom; stacks and times follow, indented.
// `stood`: time without progress. `verdict` is that of `job`.
std::string HangText(const Verdict& verdict, const JobEvidence& job, absl::Duration stood);

// An operation that ranks of a group have entered with different names, types or numbers of elements. It need not hang:
// NCCL does not check sizes, and the results are wrong.
struct Mismatch {
  std::string group;
  int64_t number = 0;
  std::vector<int32_t> odd;     // the minority, or all ranks if there is none
  std::vector<int32_t> others;  // ranks that agree
  std::string text;             // one line
};

// Returns the earliest mismatch among the collectives that ranks still remember. The job may be running.
std::optional<Mismatch> FindMismatch(const JobEvidence& job);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HANG_JUDGE_H_
