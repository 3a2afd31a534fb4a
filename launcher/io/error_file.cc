#include "launcher/io/error_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/io/file_descriptor.h"

namespace ddprun::launcher {
namespace {

std::string ErrorFolderPath(absl::string_view launcher_id) {
  return absl::StrCat(TemporaryDirectory(), "/ddprun_", launcher_id);
}

std::vector<std::filesystem::path> EntriesOf(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> entries;
  std::error_code error;
  for (std::filesystem::directory_iterator next(folder, error); !error && next != end(next); next.increment(error)) {
    entries.push_back(next->path());
  }
  return entries;
}

}  // namespace

absl::Status WriteErrorFile(const std::string& path, const std::string& content) {
  // O_NONBLOCK, in case the path is a pipe.
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

ErrorFolder::ErrorFolder(absl::string_view launcher_id) : path_(ErrorFolderPath(launcher_id)) {}

void ErrorFolder::Close() {
  MutexLock lock(&mutex_);
  if (std::exchange(made_, false)) RemoveAt(path_);
  unusable_ = true;
}

void ErrorFolder::Remove(absl::string_view launcher_id) { RemoveAt(ErrorFolderPath(launcher_id)); }

void ErrorFolder::RemoveAt(const std::string& path) {
  // Entries that can't be read or removed stay.
  for (const std::filesystem::path& rank : EntriesOf(path)) {
    unlink((rank / kErrorFileName).c_str());
    rmdir(rank.c_str());
  }
  rmdir(path.c_str());
}

std::string ErrorFolder::For(int local_rank) {
  MutexLock lock(&mutex_);
  if (!made_ && !unusable_) {
    made_ = mkdir(path_.c_str(), 0700) == 0;
    unusable_ = !made_;
  }
  if (unusable_) return "";
  const std::string folder = absl::StrCat(path_, "/", local_rank);
  return mkdir(folder.c_str(), 0755) == 0 || errno == EEXIST ? folder : "";
}

absl::StatusOr<ErrorFile> ErrorFile::CreateInMemory() {
  UniqueFd memory(memfd_create("ddprun-error", MFD_CLOEXEC));
  if (!memory.valid()) return ErrnoStatus(errno, "can't allocate memory for a worker's error report");
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
  // O_NONBLOCK, in case the worker has put a pipe there.
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

absl::Status ErrorFile::WhyEmpty() const {
  if (memory_.valid()) return absl::OkStatus();
  absl::Status status = WriteErrorFile(path_, std::string(4096, '\n'));
  unlink(path_.c_str());
  return status;
}

}  // namespace ddprun::launcher
