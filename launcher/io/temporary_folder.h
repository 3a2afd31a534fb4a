#ifndef DDPRUN_LAUNCHER_IO_TEMPORARY_FOLDER_H_
#define DDPRUN_LAUNCHER_IO_TEMPORARY_FOLDER_H_

#include <stdlib.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

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

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_IO_TEMPORARY_FOLDER_H_
