#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_SAFETENSORS_FILE_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_SAFETENSORS_FILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker_runtime/checkpoint/file_system.h"
#include "worker_runtime/checkpoint/safetensors_header.h"
#include "worker_runtime/checkpoint/seal.h"

namespace ddprun {

// A safetensors file, mapped: only what is looked at is read. Whatever the file holds, opening it either gives an error
// or tensors that lie inside it. Thread-safe, but for mutable_bytes. It must not be shortened while it is open (files
// of AtomicFile never are).
class SafetensorsFile {
 public:
  // Reads and checks the header, and its checksum if it has one.
  // Errors: NotFound, PermissionDenied, Unavailable: the file can't be read; DataLoss: it is damaged, or no such file.
  // All name the path.
  static absl::StatusOr<std::shared_ptr<SafetensorsFile>> Open(const std::string& path);

  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  const std::string& header_text() const { return text_; }
  // Nullopt: written by somebody else, so that damage inside tensors can't be found.
  const std::optional<Seal>& seal() const { return seal_; }

  // Of one of header().tensors, as long as this object lives. Not checked.
  absl::string_view bytes(const SafetensorsTensor& tensor) const;
  // The same to be written to: changes are this process' own and do not reach the file.
  char* mutable_bytes(const SafetensorsTensor& tensor);

  // Compares one tensor, by its index in header().tensors, with its checksum. OK without one.
  // Errors: DataLoss names file and tensor.
  absl::Status CheckTensor(size_t index) const;

  // The same for all, by reading and not through the mapping, so that a bad sector is an error and not a signal.
  absl::Status CheckAll() const;

 private:
  SafetensorsFile(std::string path, int fd, uint64_t file_bytes);
  absl::Status ReadHeader();
  absl::Status Map();
  absl::Status Damaged(const SafetensorsTensor& tensor) const;

  const std::string path_;
  const int fd_;
  const uint64_t file_bytes_;
  std::string text_;
  SafetensorsHeader header_;
  std::optional<Seal> seal_;
  char* mapping_ = nullptr;
};

// Writes a safetensors file with checksums, by AtomicFile. `layout` comes from LayOutSafetensors; `bytes` has one piece
// for each of its tensors, of its size. Returns the checksum of the header, which stands for the whole content.
// Errors: those of AtomicFile; InvalidArgument: the header would be too long to be read again.
absl::StatusOr<uint64_t> WriteSafetensors(const std::string& path, const SafetensorsHeader& layout,
                                          absl::Span<const absl::string_view> bytes, FileSystem& files);

// The same in two steps, for a file whose name depends on its content.
SealedHeader SealBytes(const SafetensorsHeader& layout, absl::Span<const absl::string_view> bytes);
absl::Status WriteSealed(const std::string& path, const SealedHeader& sealed, absl::Span<const absl::string_view> bytes,
                         FileSystem& files);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_SAFETENSORS_FILE_H_
