#ifndef DDPRUN_LAUNCHER_IO_OUTPUT_SOURCE_H_
#define DDPRUN_LAUNCHER_IO_OUTPUT_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "launcher/io/log_pump.h"

// Output of workers that is read again, for users who look at it: from the log file if there is one, else from what
// the pump keeps.
namespace ddprun::launcher {

// Output of one stream of one process. Value type; several threads may read it. Positions are bytes of the stream.
struct OutputSource {
  std::string path;                                // file that receives the stream; empty: none
  uint64_t from = 0;                               // size of that file before
  std::shared_ptr<const PipeTail> tail = nullptr;  // null: the stream does not pass through the launcher
  bool joined = false;  // stdout that is part of the stderr stream, so that their order is kept

  bool seen() const { return !path.empty() || tail != nullptr; }
};

struct OutputPart {
  std::string text;
  uint64_t begin = 0;  // position of `text`
  bool found = true;   // false: the source can't be read

  uint64_t end() const { return begin + text.size(); }
};

// Returns at most `max` bytes from position `from` on. If those are gone (not kept any more, or the file was
// truncated), `begin` differs from `from`. May block: not for the loop's thread.
OutputPart ReadOutput(const OutputSource& source, uint64_t from, size_t max);

// Returns the last bytes, at most `max`; with `since`, only what was written during this last time. The time of output
// that went to a file directly is not known: it counts as written when the file was written last. May block.
OutputPart ReadOutputEnd(const OutputSource& source, size_t max, std::optional<absl::Duration> since);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_IO_OUTPUT_SOURCE_H_
