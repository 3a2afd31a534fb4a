#include "worker_runtime/safetensors/safetensors_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "worker_runtime/safetensors/checksum.h"
#include "worker_runtime/safetensors/file_system.h"

namespace ddprun {
namespace {

constexpr size_t kReadAtOnce = size_t{1} << 20;

absl::Status CantRead(const std::string& path, int error) {
  const absl::StatusCode code = error == ENOENT || error == ENOTDIR ? absl::StatusCode::kNotFound
                                : error == EACCES || error == EPERM ? absl::StatusCode::kPermissionDenied
                                                                    : absl::StatusCode::kUnavailable;
  return absl::Status(code, absl::StrCat("can't read ", path, ": ", std::strerror(error)));
}

// Reads exactly `size` bytes.
absl::Status ReadAt(int fd, const std::string& path, uint64_t offset, char* to, size_t size) {
  while (size > 0) {
    const ssize_t got = ::pread(fd, to, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return CantRead(path, errno);
    if (got == 0) return absl::DataLossError(absl::StrCat(path, " was truncated while it was read"));
    to += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  // O_NONBLOCK, so as not to block on a named pipe.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return CantRead(path, errno);
  struct stat found;
  if (::fstat(fd, &found) != 0 || !S_ISREG(found.st_mode)) {
    ::close(fd);
    return absl::DataLossError(absl::StrCat(path, " is not a regular file"));
  }
  std::shared_ptr<SafetensorsFile> file(new SafetensorsFile(path, fd, static_cast<uint64_t>(found.st_size)));
  DDPRUN_RETURN_IF_ERROR(file->ReadHeader());
  DDPRUN_RETURN_IF_ERROR(file->Map());
  return file;
}

SafetensorsFile::SafetensorsFile(std::string path, int fd, uint64_t file_bytes)
    : path_(std::move(path)), fd_(fd), file_bytes_(file_bytes) {}

SafetensorsFile::~SafetensorsFile() {
  if (mapping_ != nullptr) ::munmap(mapping_, file_bytes_);
  ::close(fd_);
}

absl::Status SafetensorsFile::ReadHeader() {
  char prefix[kSafetensorsPrefixBytes];
  const size_t prefix_bytes = std::min<uint64_t>(file_bytes_, kSafetensorsPrefixBytes);
  DDPRUN_RETURN_IF_ERROR(ReadAt(fd_, path_, 0, prefix, prefix_bytes));
  DDPRUN_ASSIGN_OR_RETURN(const uint64_t length,
                          SafetensorsTextBytes(path_, absl::string_view(prefix, prefix_bytes), file_bytes_));
  text_.resize(length);
  DDPRUN_RETURN_IF_ERROR(ReadAt(fd_, path_, kSafetensorsPrefixBytes, text_.data(), length));
  DDPRUN_ASSIGN_OR_RETURN(header_, ParseSafetensorsHeader(path_, text_, file_bytes_));
  DDPRUN_ASSIGN_OR_RETURN(seal_, ReadSeal(path_, text_, header_));
  return absl::OkStatus();
}

absl::Status SafetensorsFile::Map() {
  void* const mapping = ::mmap(nullptr, file_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd_, 0);
  if (mapping == MAP_FAILED) return CantRead(path_, errno);
  mapping_ = static_cast<char*>(mapping);
  return absl::OkStatus();
}

absl::string_view SafetensorsFile::bytes(const SafetensorsTensor& tensor) const {
  return absl::string_view(mapping_ + header_.data_begin + tensor.begin, tensor.bytes());
}

char* SafetensorsFile::mutable_bytes(const SafetensorsTensor& tensor) {
  return mapping_ + header_.data_begin + tensor.begin;
}

absl::Status SafetensorsFile::Damaged(const SafetensorsTensor& tensor) const {
  return absl::DataLossError(
      absl::StrCat(path_, " is damaged: checksum mismatch in tensor \"", OneLine(tensor.name, 120), "\""));
}

absl::Status SafetensorsFile::CheckTensor(size_t index) const {
  const SafetensorsTensor& tensor = header_.tensors[index];
  if (seal_ && Checksum(bytes(tensor)) != seal_->tensor_checksums[index]) return Damaged(tensor);
  return absl::OkStatus();
}

absl::Status SafetensorsFile::CheckAll() const {
  if (!seal_) return absl::OkStatus();
  std::string buffer(kReadAtOnce, '\0');
  for (size_t index = 0; index < header_.tensors.size(); ++index) {
    const SafetensorsTensor& tensor = header_.tensors[index];
    ChecksumStream checksum;
    for (uint64_t done = 0; done < tensor.bytes();) {
      const size_t size = std::min<uint64_t>(kReadAtOnce, tensor.bytes() - done);
      const uint64_t offset = header_.data_begin + tensor.begin + done;
      DDPRUN_RETURN_IF_ERROR(ReadAt(fd_, path_, offset, buffer.data(), size));
      checksum.Add(absl::string_view(buffer.data(), size));
      done += size;
    }
    if (checksum.Value() != seal_->tensor_checksums[index]) return Damaged(tensor);
  }
  return absl::OkStatus();
}

absl::Status WriteSafetensors(const std::string& path, const SafetensorsHeader& layout,
                              absl::Span<const absl::string_view> bytes, FileSystem& files,
                              absl::FunctionRef<absl::Status()> before_rename) {
  std::vector<uint64_t> checksums;
  checksums.reserve(bytes.size());
  for (const absl::string_view piece : bytes) checksums.push_back(Checksum(piece));
  const std::string text = SealHeader(layout, checksums);
  if (text.size() > kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("can't write ", path, ": its header would have ", text.size(),
                                                   " bytes, limit ", kMaxSafetensorsHeaderBytes));
  }
  DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file, AtomicFile::Create(path, files));
  absl::Status status = file->Append(absl::StrCat(SafetensorsPrefix(text.size()), text));
  for (size_t i = 0; i < bytes.size() && status.ok();) {
    // Pieces that are adjacent in memory, like those of a snapshot, are written together.
    absl::string_view piece = bytes[i++];
    while (i < bytes.size() && bytes[i].data() == piece.data() + piece.size()) {
      piece = absl::string_view(piece.data(), piece.size() + bytes[i++].size());
    }
    if (!piece.empty()) status = file->Append(piece);
  }
  if (status.ok()) status = before_rename();
  return status.ok() ? file->Commit() : status;
}

}  // namespace ddprun
