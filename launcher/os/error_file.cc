#include "launcher/os/error_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "launcher/os/errno_status.h"

namespace ddprun::launcher {

absl::StatusOr<ErrorFile> ErrorFile::CreateInMemory() {
  UniqueFd memory(memfd_create("ddprun-error", MFD_CLOEXEC));
  if (!memory.valid()) return ErrnoStatus(errno, "memory for a worker's error report");
  std::string path = absl::StrCat("/proc/", getpid(), "/fd/", memory.get());
  return ErrorFile(std::move(path), std::move(memory));
}

absl::StatusOr<ErrorFile> ErrorFile::AtPath(const std::string& path) {
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat("can't replace the error file '", path, "'"));
  }
  return ErrorFile(path, UniqueFd());
}

std::string ErrorFile::Read() const {
  // Never waits, should the worker have put a pipe there.
  const UniqueFd opened(memory_.valid() ? -1 : open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const int fd = memory_.valid() ? memory_.get() : opened.get();
  std::string content;
  char buffer[4096];
  while (fd >= 0 && content.size() < kMaxRead) {
    const ssize_t got = pread(fd, buffer, std::min(sizeof(buffer), kMaxRead - content.size()), content.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    content.append(buffer, got);
  }
  return content;
}

}  // namespace ddprun::launcher
