#include "launcher/io/output_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/string_view.h"
#include "launcher/io/unique_fd.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kPipeBytes = 65536;  // the usual capacity

void AppendTail(absl::string_view bytes, std::string* tail) {
  const size_t kept = std::min(tail->size(), kOutputTailBytes - std::min(bytes.size(), kOutputTailBytes));
  tail->erase(0, tail->size() - kept);
  bytes.remove_prefix(bytes.size() - std::min(bytes.size(), kOutputTailBytes));
  tail->append(bytes.data(), bytes.size());
}

}  // namespace

ssize_t PipeTail::Read(char* buffer, size_t size) {
  MutexLock lock(&mutex_);
  const ssize_t got = read(pipe_, buffer, size);
  if (got > 0) AppendTail({buffer, static_cast<size_t>(got)}, &kept_);
  return got;
}

void PipeTail::End() {
  MutexLock lock(&mutex_);
  pipe_ = -1;
}

std::string PipeTail::Text() const {
  MutexLock lock(&mutex_);
  std::string text = kept_;
  int ends[2];
  if (pipe_ < 0 || pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return text;
  const UniqueFd copy(ends[0]), into(ends[1]);
  const ssize_t unread = tee(pipe_, into.get(), kPipeBytes, SPLICE_F_NONBLOCK);
  if (unread <= 0) return text;
  std::string buffer(unread, '\0');
  const ssize_t got = read(copy.get(), buffer.data(), buffer.size());
  if (got > 0) AppendTail(absl::string_view(buffer).substr(0, got), &text);
  return text;
}

std::string ReadFileTail(const std::string& path, int64_t from) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status = {};
  if (!file.valid() || fstat(file.get(), &status) != 0 || status.st_size <= from) return "";
  std::string text(std::min<int64_t>(status.st_size - from, kOutputTailBytes), '\0');
  const ssize_t got = pread(file.get(), text.data(), text.size(), status.st_size - static_cast<int64_t>(text.size()));
  text.resize(std::max<ssize_t>(got, 0));
  return text;
}

}  // namespace ddprun::launcher
