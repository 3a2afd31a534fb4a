#include "launcher/io/file_descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/stream_writer.h"

namespace ddprun::launcher {

absl::Status WriteNewFile(const std::string& path, absl::string_view text, mode_t mode, bool durable) {
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  const int error = file.valid() ? WriteAll(file.get(), text) : errno;
  if (error != 0 || (durable && fsync(file.get()) != 0)) return ErrnoStatus(error != 0 ? error : errno, path);
  return absl::OkStatus();
}

absl::Status ReplaceFile(const std::string& path, absl::string_view text, mode_t mode, bool durable) {
  const std::string part = absl::StrCat(path, ".", getpid(), ".part");
  unlink(part.c_str());  // left by a killed process with this number
  absl::Status status = WriteNewFile(part, text, mode, durable);
  if (status.ok() && rename(part.c_str(), path.c_str()) != 0) status = ErrnoStatus(errno, path);
  if (!status.ok()) unlink(part.c_str());
  return status;
}

void OpenMissingStandardStreams() {
  // open returns the lowest free number, so gaps are filled in order; the first descriptor above 2 is closed again.
  int fd;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd < 3);
  if (fd >= 0) close(fd);
}

}  // namespace ddprun::launcher
