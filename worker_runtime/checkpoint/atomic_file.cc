#include "worker_runtime/checkpoint/atomic_file.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/random_id.h"

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
  absl::StatusOr<int> fd = absl::AlreadyExistsError("not tried");
  std::string temporary;
  for (int tries = 0; tries < 10 && absl::IsAlreadyExists(fd.status()); ++tries) {
    temporary = absl::StrCat(split.folder, "/.", split.name, ".", RandomId(), kTemporary);
    fd = files.Create(temporary);
  }
  if (!fd.ok()) return fd.status();
  return std::unique_ptr<AtomicFile>(new AtomicFile(path, std::move(temporary), *fd, files));
}

AtomicFile::AtomicFile(std::string path, std::string temporary, int fd, FileSystem& files)
    : path_(std::move(path)), temporary_(std::move(temporary)), files_(files), fd_(fd) {}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) files_.Close(fd_);
  // If it can't be removed now, the next save tries again.
  if (!renamed_) files_.Remove(temporary_).IgnoreError();
}

absl::Status AtomicFile::Append(absl::string_view bytes) { return files_.Write(fd_, bytes, temporary_); }

absl::Status AtomicFile::Commit() {
  if (absl::Status status = files_.Sync(fd_, temporary_); !status.ok()) return status;
  if (absl::Status status = files_.Rename(temporary_, path_); !status.ok()) return status;
  renamed_ = true;
  // The lock is held until here: a file that is not locked and has a temporary name belongs to nobody.
  files_.Close(fd_);
  fd_ = -1;
  return files_.SyncFolder(SplitPath(path_).folder);
}

void RemoveLeftOvers(const std::string& folder, FileSystem& files) {
  const absl::StatusOr<std::vector<std::string>> names = ListFolder(folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!absl::StartsWith(name, ".") || !absl::EndsWith(name, kTemporary)) continue;
    if (!absl::StrContains(name, ".safetensors.")) continue;
    const std::string path = absl::StrCat(folder, "/", name);
    IfNobodyWrites(path, [&] { files.Remove(path).IgnoreError(); });
  }
}

}  // namespace ddprun
