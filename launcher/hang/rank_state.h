#ifndef DDPRUN_LAUNCHER_HANG_RANK_STATE_H_
#define DDPRUN_LAUNCHER_HANG_RANK_STATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/hang.pb.h"

// PURE. What one rank of a job does, from the evidence about its processes alone: whether it works, and in which words
// a report describes it. The kernel says in which call the main thread waits, the native stack on whose behalf, and the
// Python stack, or the native one, in which line or function of the user's program. The evidence may be hostile: it
// travels over the network.
namespace ddprun::launcher {

class RankState {
 public:
  enum class Activity {
    kIdle,
    kBusy,      // it or its children compute, move data, or wait for a processor or a GPU
    kDebugger,  // a person debugs it
    kGone,      // it has ended
    kUnknown,   // nothing is known about its processes
  };
  // Place of the main thread according to the native stack.
  enum class Place { kUnknown, kInCollective, kElsewhere };

  // `rank` must outlive the state.
  RankState(const hang::v1::Rank* rank, absl::string_view host) : rank_(rank), host_(host) {}

  int32_t rank() const { return rank_->rank(); }
  const std::string& host() const { return host_; }
  const hang::v1::Rank& evidence() const { return *rank_; }

  bool ended() const { return !rank_->ended().empty(); }
  // True if the collectives that it has entered are known.
  bool recorded() const { return rank_->recorded() || rank_->groups_size() > 0; }
  // True if there is evidence of any kind.
  bool known() const { return ended() || recorded() || rank_->has_process() || rank_->connections_size() > 0; }
  bool stopped() const { return rank_->process().state() == "T"; }
  Activity activity() const;
  Place place() const;
  // True if its main thread waits for its GPU, which may use a whole processor.
  bool waits_for_device() const;

  // A phrase with a verb: "sleeps at train.py:31 in load; its child 4711 reads /tmp/x at data.py:8 in __getitem__".
  // `operation` is named in place of a collective in which it waits; it may be empty.
  std::string Phrase(absl::string_view operation) const;
  // " at train.py:31 in load": the innermost line of the user's program, in C++ " in train::Load() (trainer+0x1234)";
  // empty: unknown.
  std::string Where() const;
  // Indented lines with its stacks, beginning with `name`: innermost frames and those of the user's program, or native
  // ones if it is not Python.
  std::vector<std::string> StackLines(absl::string_view name) const;

  // "waits for a lock; state S": what the main thread does.
  std::string Summary() const;
  // Python stacks of all threads of the process and its children; a stack's lines are indented, its title is not.
  std::string PythonStacks() const;
  // Native stack of the main thread, in the same form.
  std::string NativeStack() const;

 private:
  const hang::v1::Rank* rank_;
  std::string host_;
};

// "all_reduce #41 (Float[10])".
std::string OperationText(const hang::v1::Collective& operation);
// "the default group", "group mesh_tp".
std::string GroupText(absl::string_view name);
// Name of the default group in Group.name.
inline constexpr char kDefaultGroup[] = "default_pg";
// Native stacks have at most this many lines (proto/hang.proto).
inline constexpr int kMaxNativeLines = 12;
// True for "default_pg" and "default_pg (gloo)", the second backend of the default group.
bool IsDefaultGroup(absl::string_view name);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HANG_RANK_STATE_H_
