#include "worker_runtime/safetensors/atomic_file.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace ddprun {
namespace {

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

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path, FileSystem& files) {
  const Split split = SplitPath(path);
  std::string temporary = absl::StrCat(split.folder, "/.", split.name, ".", RandomId(), kTemporary);
  const absl::StatusOr<int> fd = files.Create(temporary);
  if (!fd.ok()) return fd.status();
  return std::unique_ptr<AtomicFile>(new AtomicFile(path, std::move(temporary), *fd, files));
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
  if (absl::Status status = files_.Sync(fd_, temporary_); !status.ok()) return status;
  if (absl::Status status = files_.Rename(temporary_, path_); !status.ok()) return status;
  renamed_ = true;
  files_.Close(fd_);
  fd_ = -1;
  return files_.SyncFolder(SplitPath(path_).folder);
}

bool IsTemporaryName(absl::string_view name) { return absl::StartsWith(name, ".") && absl::EndsWith(name, kTemporary); }

}  // namespace ddprun
