#ifndef DDPRUN_LAUNCHER_CONFIG_STD_STREAMS_H_
#define DDPRUN_LAUNCHER_CONFIG_STD_STREAMS_H_

#include <cstdint>
#include <map>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// A selection of a worker's two output streams.
struct StdStreams {
  bool out = false;
  bool err = false;

  bool any() const { return out || err; }
  friend StdStreams operator|(StdStreams a, StdStreams b) { return {a.out || b.out, a.err || b.err}; }
  friend bool operator==(StdStreams, StdStreams) = default;
};

// The streams chosen for each local rank by --redirects or --tee. Thread-compatible value type.
class StreamChoice {
 public:
  StreamChoice() = default;  // none for all
  explicit StreamChoice(StdStreams all) : others_(all) {}
  // The named ranks; all others have none.
  explicit StreamChoice(std::map<int32_t, StdStreams> by_local_rank) : by_local_rank_(std::move(by_local_rank)) {}

  StdStreams For(int32_t local_rank) const;
  // True if some local rank has a stream selected.
  bool any() const;
  // The largest local rank named; -1 if none is.
  int32_t MaxNamedRank() const { return by_local_rank_.empty() ? -1 : by_local_rank_.rbegin()->first; }

  friend bool operator==(const StreamChoice&, const StreamChoice&) = default;

 private:
  std::map<int32_t, StdStreams> by_local_rank_;
  StdStreams others_;
};

// Parses 0 (none), 1 (stdout), 2 (stderr) or 3 (both) for all workers, or a map from local rank to such a number, as in
// "0:3,12:1"; ranks that it leaves out have none. InvalidArgument: one line, without the flag's name.
absl::StatusOr<StreamChoice> ParseStreamChoice(absl::string_view text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_STD_STREAMS_H_
