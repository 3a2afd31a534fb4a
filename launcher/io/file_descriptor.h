#ifndef DDPRUN_LAUNCHER_IO_FILE_DESCRIPTOR_H_
#define DDPRUN_LAUNCHER_IO_FILE_DESCRIPTOR_H_

#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

// File descriptors: their owner, the status of a failed system call, new files, and the three standard streams.
namespace ddprun::launcher {

// Owns one file descriptor and closes it. Thread-compatible value type.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() { reset(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;

  // -1 if nothing is owned.
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// "<what>: <text of error_number>" with the status code that absl assigns to that errno.
inline absl::Status ErrnoStatus(int error_number, absl::string_view what) {
  return absl::Status(absl::ErrnoToStatusCode(error_number), absl::StrCat(what, ": ", strerror(error_number)));
}

// Writes a new file; `durable`: on return it survives a crash of the host. Error: of the system, with the path; it
// exists.
absl::Status WriteNewFile(const std::string& path, absl::string_view text, mode_t mode, bool durable = true);

// Like WriteNewFile, but replaces a file: readers see the old content or the whole new one. After an error nothing is
// left behind.
absl::Status ReplaceFile(const std::string& path, absl::string_view text, mode_t mode, bool durable = true);

// Opens /dev/null for each closed descriptor among 0, 1 and 2, so that no file opened later gets one of these numbers
// and with it the workers' output. Call it first in main.
void OpenMissingStandardStreams();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_IO_FILE_DESCRIPTOR_H_
