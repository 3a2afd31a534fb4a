#ifndef DDPRUN_LAUNCHER_IO_ERRNO_STATUS_H_
#define DDPRUN_LAUNCHER_IO_ERRNO_STATUS_H_

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// "<what>: <text of error_number>" with the status code that absl assigns to that errno.
inline absl::Status ErrnoStatus(int error_number, absl::string_view what) {
  return absl::Status(absl::ErrnoToStatusCode(error_number), absl::StrCat(what, ": ", strerror(error_number)));
}

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_IO_ERRNO_STATUS_H_
