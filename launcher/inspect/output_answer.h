#ifndef DDPRUN_LAUNCHER_INSPECT_OUTPUT_ANSWER_H_
#define DDPRUN_LAUNCHER_INSPECT_OUTPUT_ANSWER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "launcher/io/output_source.h"
#include "rendezvous/core/inspection.h"

// Answers to questions about the output of ranks.
namespace ddprun::launcher {

// The output of a rank's process, as one of its streams.
struct OutputOfProcess {
  uint32_t process = 0;  // random, 24 bits; 0: there is none
  OutputSource source;
};

// One stream that was asked for. A position (RankOutput.end) is the number of the process and a number of bytes, so
// that it is never taken for one in the stream of another process.
struct AskedStream {
  int32_t rank = 0;
  bool is_stderr = false;
  OutputOfProcess current, previous;  // previous: before a restart
  std::optional<uint64_t> after;      // the position from which it is asked for; unset: its end
};

// Reads the streams: at most `max` bytes in all, and of each at most its share, but the first ones leave what they do
// not need to the others. A stream that was asked for by a position has no answer if nothing is new. May block: not for
// the loop's thread.
std::vector<rendezvous::RankOutput> AnswerOutput(const std::vector<AskedStream>& asked,
                                                 std::optional<absl::Duration> since, size_t max);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_INSPECT_OUTPUT_ANSWER_H_
