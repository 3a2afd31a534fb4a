#ifndef DDPRUN_LAUNCHER_IO_SEGMENTED_LOG_H_
#define DDPRUN_LAUNCHER_IO_SEGMENTED_LOG_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "launcher/io/file_descriptor.h"

// A log of bounded size that can be read from any position while it is written. It consists of files: STEM.N.log has
// the bytes from N * kSegmentBytes on, and only the newest kSegments of them are kept.
namespace ddprun::launcher {

inline constexpr int64_t kSegmentBytes = 16 << 20;
inline constexpr int64_t kSegments = 4;

// Thread-compatible.
class SegmentedLogWriter {
 public:
  // A new log; `stem` is the path without ".N.log".
  explicit SegmentedLogWriter(std::string stem) : stem_(std::move(stem)) {}
  // Bytes that can't be written (disk full) are lost; later ones follow in their place.
  void Write(absl::string_view bytes);

 private:
  const std::string stem_;
  int64_t end_ = 0;
  UniqueFd segment_;
};

struct LogPiece {
  std::string bytes;     // empty: nothing is there yet
  int64_t position = 0;  // position of the byte after them
  int64_t lost = 0;      // bytes before them that are no longer there
};
// Reads some bytes from `position` on. Thread-safe.
LogPiece ReadSegmentedLog(const std::string& stem, int64_t position);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_IO_SEGMENTED_LOG_H_
