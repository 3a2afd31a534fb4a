#ifndef DDPRUN_WORKER_RUNTIME_SAFETENSORS_FILE_SYSTEM_H_
#define DDPRUN_WORKER_RUNTIME_SAFETENSORS_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// The operations that modify a checkpoint directory, one system call each (except for retries). An interface, so that
// tests can stop after any of them, make them fail, and drop unsynced data. Thread-safe.
//
// Errors have the path and the system's message. ResourceExhausted: no space or quota left; NotFound: no such
// directory; AlreadyExists: Create of an existing file; PermissionDenied, also for a read-only file system;
// Unavailable: any other error.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Creates a file that must not exist, open for writing.
  virtual absl::StatusOr<int> Create(const std::string& path) = 0;
  // Appends all of `bytes`. `path` is only for errors.
  virtual absl::Status Write(int fd, absl::string_view bytes, const std::string& path) = 0;
  // When this returns OK, the file's contents are on disk.
  virtual absl::Status Sync(int fd, const std::string& path) = 0;
  virtual void Close(int fd) = 0;
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // When this returns OK, the directory's entries are on disk.
  virtual absl::Status SyncFolder(const std::string& folder) = 0;
  // Returns OK if the file does not exist.
  virtual absl::Status Remove(const std::string& path) = 0;

  // The real file system. Never destroyed.
  static FileSystem& Real();
  // The real file system, but data from page-aligned memory for a page-aligned offset in the file is written directly
  // to the disk (O_DIRECT) if the file system supports it. This takes a tenth of the CPU time of a copy into the page
  // cache, which a background writer would take from the training.
  static FileSystem& Direct();
};

// Distinguishes two files that had the same path one after the other, without reading their contents. IdentityOf opens
// the file, which makes NFS ask its server. Errors as above.
struct FileIdentity {
  uint64_t inode = 0;
  int64_t modified_nanoseconds = 0;
  uint64_t bytes = 0;

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};
absl::StatusOr<FileIdentity> IdentityOf(const std::string& path);

// Names in a directory, without "." and "..", in no particular order.
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& folder);

// Creates a directory and its parents; OK if it exists. Errors as above.
absl::Status MakeFolder(const std::string& folder);

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

#endif  // DDPRUN_WORKER_RUNTIME_SAFETENSORS_FILE_SYSTEM_H_
