#ifndef DDPRUN_WORKER_RUNTIME_SAFETENSORS_SAFETENSORS_FILE_H_
#define DDPRUN_WORKER_RUNTIME_SAFETENSORS_SAFETENSORS_FILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker_runtime/safetensors/file_system.h"
#include "worker_runtime/safetensors/safetensors_header.h"

namespace ddprun {

// A memory-mapped safetensors file: only accessed parts are read. For any contents, opening the file returns an error
// or tensors that lie within it. Thread-safe, except for mutable_bytes. The file must not be truncated while it is open
// (files of AtomicFile never are).
class SafetensorsFile {
 public:
  // Reads and checks the header, and its checksum if it has one.
  // Errors: NotFound, PermissionDenied, Unavailable: the file can't be read; DataLoss: damaged, or not a safetensors
  // file. All name the path.
  static absl::StatusOr<std::shared_ptr<SafetensorsFile>> Open(const std::string& path);

  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  const std::string& header_text() const { return text_; }
  // Nullopt: the file was written by another program, so damage inside tensors can't be detected.
  const std::optional<Seal>& seal() const { return seal_; }

  // The bytes of one of header().tensors, valid while this object exists. Not checked.
  absl::string_view bytes(const SafetensorsTensor& tensor) const;
  // Writable bytes of a tensor: changes are private to this process and do not reach the file.
  char* mutable_bytes(const SafetensorsTensor& tensor);

  // Verifies the checksum of one tensor, by its index in header().tensors. OK if it has none.
  // Errors: DataLoss names file and tensor.
  absl::Status CheckTensor(size_t index) const;

  // Verifies all checksums with read() instead of through the mapping, so that a bad sector causes an error rather than
  // a signal.
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

// Writes a safetensors file with checksums, with AtomicFile. `layout` comes from LayOutSafetensors; `bytes` has one
// piece per tensor, of its size. `before_rename` is called just before the file is renamed; its error aborts the write.
// Errors: those of AtomicFile and of `before_rename`; InvalidArgument: the header would exceed the format's limit.
absl::Status WriteSafetensors(
    const std::string& path, const SafetensorsHeader& layout, absl::Span<const absl::string_view> bytes,
    FileSystem& files, absl::FunctionRef<absl::Status()> before_rename = [] { return absl::OkStatus(); });

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_SAFETENSORS_SAFETENSORS_FILE_H_
