#ifndef DDPRUN_LAUNCHER_IO_ERROR_FILE_H_
#define DDPRUN_LAUNCHER_IO_ERROR_FILE_H_

#include <stdlib.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/report/error_file_format.h"

// Error files: a worker writes its error report as JSON into a file that its launcher names (torchrun's format and
// variable, TORCHELASTIC_ERROR_FILE). The file is in --log-dir, in an ErrorFolder of the temporary directory, or in
// memory.
namespace ddprun::launcher {

// $TMPDIR, or /tmp.
inline std::string TemporaryDirectory() {
  const char* const given = getenv("TMPDIR");
  return given != nullptr && *given != '\0' ? given : "/tmp";
}

// Creates a new folder in the temporary directory, accessible to this user only, and returns its path.
// FailedPrecondition: the attempted name, and why it can't be created.
inline absl::StatusOr<std::string> MakeTemporaryFolder() {
  std::string pattern = absl::StrCat(TemporaryDirectory(), "/ddprun_XXXXXX");
  if (mkdtemp(pattern.data()) == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(pattern, ": ", std::generic_category().message(errno)));
  }
  return pattern;
}

inline constexpr char kErrorFileName[] = "error.json";  // torchrun's

// Writes `content` to the error file named by an outer launcher, replacing its content. InvalidArgument and others,
// naming the file: it can't be written.
absl::Status WriteErrorFile(const std::string& path, const std::string& content);

// Folder of error files if no --log-dir is given: created on demand in the temporary directory, with a folder for each
// local rank, which its workers use in turn. The destructor removes it. Thread-safe.
class ErrorFolder {
 public:
  // `launcher_id` is unique (see RandomId).
  explicit ErrorFolder(absl::string_view launcher_id);
  ~ErrorFolder() { Close(); }
  ErrorFolder(const ErrorFolder&) = delete;
  ErrorFolder& operator=(const ErrorFolder&) = delete;

  // Folder of a rank; empty if it can't be created (then error files are in memory), and after Close.
  std::string For(int local_rank);

  // Removes the folder.
  void Close();

  // Removes the folder of a launcher, if any: error files, and folders that are then empty.
  static void Remove(absl::string_view launcher_id);

 private:
  static void RemoveAt(const std::string& path);

  const std::string path_;
  Mutex mutex_;
  bool made_ ABSL_GUARDED_BY(mutex_) = false, unusable_ ABSL_GUARDED_BY(mutex_) = false;
};

// The file into which a worker writes its error report (TORCHELASTIC_ERROR_FILE), one per worker and attempt.
// Thread-compatible.
class ErrorFile {
 public:
  static constexpr size_t kMaxRead = kMaxErrorFileBytes;

  // Creates a file in memory. Its path is in /proc of this process: workers of the same user in the same pid namespace
  // can open it. (A worker in its own container can't; use a real file.)
  static absl::StatusOr<ErrorFile> CreateInMemory();

  // Uses `path`, in an existing directory. The file is not created: it exists only if a worker reports an error. An
  // existing file is removed.
  static absl::StatusOr<ErrorFile> AtPath(const std::string& path);

  const std::string& path() const { return path_; }

  // Returns what the worker has written so far, at most its first kMaxRead bytes.
  std::string Read() const;

  // Returns why a worker that has exited could not write it (a full disk, a quota); OK if it could. REQUIRES: it is
  // empty.
  absl::Status WhyEmpty() const;

 private:
  ErrorFile(std::string path, UniqueFd memory) : path_(std::move(path)), memory_(std::move(memory)) {}

  std::string path_;
  UniqueFd memory_;  // not valid for a real file
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_IO_ERROR_FILE_H_
