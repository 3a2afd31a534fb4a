#include "launcher/os/error_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "launcher/os/errno_status.h"
#include "launcher/os/temporary_folder.h"

namespace ddprun::launcher {

absl::Status WriteErrorFile(const std::string& path, const std::string& content) {
  // Never waits, should somebody have put a pipe there.
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0644));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("can't write the error file '", path, "'"));
  for (size_t written = 0; written < content.size();) {
    const ssize_t put = write(fd.get(), content.data() + written, content.size() - written);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return ErrnoStatus(errno, absl::StrCat("can't write the error file '", path, "'"));
    written += put;
  }
  return absl::OkStatus();
}

ErrorFolder::~ErrorFolder() {
  for (const std::string& rank : ranks_) {
    unlink(absl::StrCat(rank, "/", kErrorFileName).c_str());
    rmdir(rank.c_str());
  }
  for (const std::string& attempt : attempts_) rmdir(attempt.c_str());
  if (!base_.empty()) rmdir(base_.c_str());
}

std::string ErrorFolder::For(int attempt, int local_rank) {
  if (failed_) return "";
  if (base_.empty()) {
    absl::StatusOr<std::string> folder = MakeTemporaryFolder();
    failed_ = !folder.ok();
    if (failed_) return "";
    base_ = *std::move(folder);
  }
  const std::string attempt_folder = absl::StrCat(base_, "/attempt_", attempt);
  const std::string folder = absl::StrCat(attempt_folder, "/", local_rank);
  if (mkdir(attempt_folder.c_str(), 0755) == 0) attempts_.insert(attempt_folder);
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return "";
  ranks_.insert(folder);
  return folder;
}

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
