#include "launcher/io/segmented_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace ddprun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr size_t kReadBytes = 64 << 10;

std::string PathOf(const std::string& stem, int64_t segment) { return absl::StrCat(stem, ".", segment, ".log"); }

// The first segment that is still there.
std::optional<int64_t> FirstSegment(const fs::path& stem) {
  std::optional<int64_t> first;
  const std::string start = absl::StrCat(stem.filename().string(), ".");
  std::error_code error;
  for (fs::directory_iterator i(stem.parent_path(), error), end; !error && i != end; i.increment(error)) {
    const std::string name = i->path().filename();
    absl::string_view text = name;
    int64_t number = 0;
    if (absl::ConsumePrefix(&text, start) && absl::ConsumeSuffix(&text, ".log") && absl::SimpleAtoi(text, &number)) {
      first = std::min(first.value_or(number), number);
    }
  }
  return first;
}

}  // namespace

void SegmentedLogWriter::Write(absl::string_view bytes) {
  while (!bytes.empty()) {
    const int64_t number = end_ / kSegmentBytes;
    if (!segment_.valid()) {
      segment_.reset(open(PathOf(stem_, number).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
      unlink(PathOf(stem_, number - kSegments).c_str());
    }
    const int64_t room = (number + 1) * kSegmentBytes - end_;
    const ssize_t written = write(segment_.get(), bytes.data(), std::min<int64_t>(room, bytes.size()));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    end_ += written;
    bytes.remove_prefix(written);
    if (written == room) segment_.reset();
  }
}

LogPiece ReadSegmentedLog(const std::string& stem, int64_t position) {
  LogPiece piece;
  piece.position = position;
  UniqueFd file(open(PathOf(stem, position / kSegmentBytes).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    const std::optional<int64_t> first = FirstSegment(stem);
    if (!first || *first * kSegmentBytes <= position) return piece;  // not written yet
    piece.position = *first * kSegmentBytes;
    file.reset(open(PathOf(stem, *first).c_str(), O_RDONLY | O_CLOEXEC));
  }
  piece.bytes.resize(kReadBytes);
  const ssize_t got = pread(file.get(), piece.bytes.data(), kReadBytes, piece.position % kSegmentBytes);
  piece.bytes.resize(std::max<ssize_t>(got, 0));
  piece.lost = piece.position - position;
  piece.position += static_cast<int64_t>(piece.bytes.size());
  return piece;
}

}  // namespace ddprun::launcher
