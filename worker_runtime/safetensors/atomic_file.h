#ifndef DDPRUN_WORKER_RUNTIME_SAFETENSORS_ATOMIC_FILE_H_
#define DDPRUN_WORKER_RUNTIME_SAFETENSORS_ATOMIC_FILE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker_runtime/safetensors/file_system.h"

namespace ddprun {

// A file that is written atomically even if the program or the machine stops: it is written under a temporary name in
// the same directory (.NAME.RANDOM.tmp), synced, renamed, and the directory synced. An existing file is kept until the
// rename. Thread-compatible.
//
// Errors are those of FileSystem. After an error only the destructor may be called.
class AtomicFile {
 public:
  // `files` outlives the object.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path, FileSystem& files);

  // Removes the written data, unless Commit succeeded.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  absl::Status Append(absl::string_view bytes);

  // When this returns OK, the file is on disk under its final name.
  absl::Status Commit();

 private:
  AtomicFile(std::string path, std::string temporary, int fd, FileSystem& files);

  const std::string path_;
  const std::string temporary_;
  FileSystem& files_;
  int fd_;  // -1: closed
  bool renamed_ = false;
};

// True if AtomicFile uses `name` for files that are not committed.
bool IsTemporaryName(absl::string_view name);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_SAFETENSORS_ATOMIC_FILE_H_
