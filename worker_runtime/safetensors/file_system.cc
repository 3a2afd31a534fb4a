#include "worker_runtime/safetensors/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/stream_writer.h"
#include "base/text.h"

namespace ddprun {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return absl::StatusCode::kResourceExhausted;
    case ENOENT:
    case ENOTDIR: return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS: return absl::StatusCode::kPermissionDenied;
    case EEXIST: return absl::StatusCode::kAlreadyExists;
    default: return absl::StatusCode::kUnavailable;
  }
}

absl::Status SystemError(absl::string_view doing, const std::string& path, int error) {
  return absl::Status(CodeOf(error), absl::StrCat("can't ", doing, " ", path, ": ", std::strerror(error)));
}

// Large enough for the disk's full speed, small enough for the disk to start writing early.
constexpr size_t kMostPerWrite = size_t{8} << 20;
// Alignment of direct writes in memory and in the file; sufficient for all common disks.
constexpr size_t kDirectAlignment = 4096;

bool Aligned(uint64_t number) { return number % kDirectAlignment == 0; }

class RealFileSystem : public FileSystem {
 public:
  explicit RealFileSystem(bool direct) : direct_(direct) {}

  absl::StatusOr<int> Create(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) return SystemError("write", path, errno);
    return fd;
  }

  absl::Status Write(int fd, absl::string_view bytes, const std::string& path) override {
    if (direct_) WriteDirectly(fd, &bytes);
    while (!bytes.empty()) {
      const absl::string_view piece = bytes.substr(0, kMostPerWrite);
      if (const int error = WriteAll(fd, piece); error != 0) return SystemError("write", path, error);
      bytes.remove_prefix(piece.size());
      // Starts writing to the disk now instead of at Sync. Only a hint: Sync reports errors.
      if (piece.size() == kMostPerWrite) ::sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    }
    return absl::OkStatus();
  }

  absl::Status Sync(int fd, const std::string& path) override {
    if (::fsync(fd) != 0) return SystemError("write", path, errno);
    return absl::OkStatus();
  }

  void Close(int fd) override { ::close(fd); }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return SystemError("write", to, errno);
    return absl::OkStatus();
  }

  absl::Status SyncFolder(const std::string& folder) override {
    const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return SystemError("open folder", folder, errno);
    // Some network file systems do not support syncing a folder, as they write names immediately.
    const int error = ::fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
    ::close(fd);
    return error == 0 ? absl::OkStatus() : SystemError("write folder", folder, error);
  }

  absl::Status Remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return SystemError("remove", path, errno);
    return absl::OkStatus();
  }

 private:
  // Writes as much as possible directly. The regular path writes the rest, retries failed writes and reports their
  // errors.
  static void WriteDirectly(int fd, absl::string_view* bytes) {
    const off_t place = ::lseek(fd, 0, SEEK_CUR);
    const bool aligned =
        place >= 0 && Aligned(static_cast<uint64_t>(place)) && Aligned(reinterpret_cast<uintptr_t>(bytes->data()));
    const int flags = ::fcntl(fd, F_GETFL);
    if (!aligned || bytes->size() < kDirectAlignment || flags < 0 || ::fcntl(fd, F_SETFL, flags | O_DIRECT) != 0)
      return;
    while (bytes->size() >= kDirectAlignment) {
      const size_t size = std::min(bytes->size() / kDirectAlignment * kDirectAlignment, kMostPerWrite);
      const ssize_t written = ::write(fd, bytes->data(), size);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) break;
      bytes->remove_prefix(static_cast<size_t>(written));
      if (!Aligned(static_cast<uint64_t>(written))) break;
    }
    ::fcntl(fd, F_SETFL, flags);
  }

  const bool direct_;
};

constexpr char kTemporary[] = ".tmp";

struct Split {
  std::string folder;
  std::string name;
};

Split SplitPath(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

}  // namespace

FileSystem& FileSystem::Real() {
  static RealFileSystem* const real = new RealFileSystem(/*direct=*/false);
  return *real;
}

FileSystem& FileSystem::Direct() {
  static RealFileSystem* const direct = new RealFileSystem(/*direct=*/true);
  return *direct;
}

absl::StatusOr<FileIdentity> IdentityOf(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat found;
  const bool known = fd >= 0 && ::fstat(fd, &found) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!known) return SystemError("read", path, error);
  return FileIdentity{.inode = found.st_ino,
                      .modified_nanoseconds = found.st_mtim.tv_sec * int64_t{1000000000} + found.st_mtim.tv_nsec,
                      .bytes = static_cast<uint64_t>(found.st_size)};
}

absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& folder) {
  DIR* const stream = ::opendir(folder.c_str());
  if (stream == nullptr) return SystemError("read folder", folder, errno);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  const int error = errno;
  ::closedir(stream);
  if (error != 0) return SystemError("read folder", folder, error);
  return names;
}

absl::Status MakeFolder(const std::string& folder) {
  struct stat found;
  if (::stat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode)) return absl::OkStatus();
  for (size_t slash = folder.find('/', 1);; slash = folder.find('/', slash + 1)) {
    const std::string part = folder.substr(0, slash);
    if (::mkdir(part.c_str(), 0755) != 0 && errno != EEXIST) return SystemError("create folder", part, errno);
    if (slash == std::string::npos) break;
  }
  if (::stat(folder.c_str(), &found) != 0) return SystemError("create folder", folder, errno);
  if (!S_ISDIR(found.st_mode)) return SystemError("create folder", folder, ENOTDIR);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path, FileSystem& files) {
  const Split split = SplitPath(path);
  std::string temporary = absl::StrCat(split.folder, "/.", split.name, ".", RandomId(), kTemporary);
  DDPRUN_ASSIGN_OR_RETURN(const int fd, files.Create(temporary));
  return std::unique_ptr<AtomicFile>(new AtomicFile(path, std::move(temporary), fd, files));
}

AtomicFile::AtomicFile(std::string path, std::string temporary, int fd, FileSystem& files)
    : path_(std::move(path)), temporary_(std::move(temporary)), files_(files), fd_(fd) {}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) files_.Close(fd_);
  // If the file can't be removed now, the next save tries again.
  if (!renamed_) files_.Remove(temporary_).IgnoreError();
}

absl::Status AtomicFile::Append(absl::string_view bytes) { return files_.Write(fd_, bytes, temporary_); }

absl::Status AtomicFile::Commit() {
  DDPRUN_RETURN_IF_ERROR(files_.Sync(fd_, temporary_));
  DDPRUN_RETURN_IF_ERROR(files_.Rename(temporary_, path_));
  renamed_ = true;
  files_.Close(fd_);
  fd_ = -1;
  return files_.SyncFolder(SplitPath(path_).folder);
}

bool IsTemporaryName(absl::string_view name) { return absl::StartsWith(name, ".") && absl::EndsWith(name, kTemporary); }

}  // namespace ddprun
