#ifndef DDPRUN_LAUNCHER_OS_ERROR_FILE_H_
#define DDPRUN_LAUNCHER_OS_ERROR_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "launcher/core/error_file.h"
#include "launcher/os/unique_fd.h"

namespace ddprun::launcher {

// The file into which a worker writes its error report (TORCHELASTIC_ERROR_FILE), one per worker and attempt. Without a
// log directory it is in memory and freed with the launcher, so nothing is left in the temporary directory.
// Thread-compatible.
class ErrorFile {
 public:
  static constexpr size_t kMaxRead = kMaxErrorFileBytes;

  // In memory. Its path is in /proc of this process: workers of the same user in the same pid namespace can open it. (A
  // worker in its own container can't; use a real file.)
  static absl::StatusOr<ErrorFile> CreateInMemory();

  // At `path`, in an existing directory. Not created: it exists only if a worker reports an error. An existing file is
  // removed.
  static absl::StatusOr<ErrorFile> AtPath(const std::string& path);

  const std::string& path() const { return path_; }

  // What the worker has written so far, at most its first kMaxRead bytes; empty if nothing.
  std::string Read() const;

 private:
  ErrorFile(std::string path, UniqueFd memory) : path_(std::move(path)), memory_(std::move(memory)) {}

  std::string path_;
  UniqueFd memory_;  // not valid for a real file
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_ERROR_FILE_H_
