#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_FILE_SYSTEM_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_FILE_SYSTEM_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// The operations that change a checkpoint folder, one system call each (but for repeats). An interface so that tests
// can stop after any of them, let them fail, and forget what was not synced. Thread-safe.
//
// Errors name the path and what the system says. ResourceExhausted: no space or quota left; NotFound: no such folder;
// PermissionDenied; FailedPrecondition: a read-only file system; Unavailable: anything else.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // A new file that must not exist yet, open for writing and locked (flock) as long as it is open, so that others see
  // that its writer lives. AlreadyExists: choose another name.
  virtual absl::StatusOr<int> Create(const std::string& path) = 0;
  // All of `bytes`, at the end. `path` is for the error only.
  virtual absl::Status Write(int fd, absl::string_view bytes, const std::string& path) = 0;
  // Not before this returns are the file's bytes on the disk.
  virtual absl::Status Sync(int fd, const std::string& path) = 0;
  virtual void Close(int fd) = 0;
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Not before this returns are the folder's names on the disk.
  virtual absl::Status SyncFolder(const std::string& folder) = 0;
  // OK if it is not there.
  virtual absl::Status Remove(const std::string& path) = 0;

  // The kernel's. Lives as long as the program.
  static FileSystem& Real();
};

// Names in a folder, without "." and "..", in no order.
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& folder);

// Makes a folder and those above it; OK if it is there. Errors as above.
absl::Status MakeFolder(const std::string& folder);

// Runs `action` if no living process holds the file that FileSystem::Create made, and sees to it that none does
// meanwhile. False: not run, as one does, or as it can't be told (a file system without locks).
bool IfNobodyWrites(const std::string& path, absl::FunctionRef<void()> action);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_FILE_SYSTEM_H_
