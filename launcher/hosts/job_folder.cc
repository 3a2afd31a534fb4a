#include "launcher/hosts/job_folder.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "launcher/os/errno_status.h"

namespace ddprun::launcher {

absl::StatusOr<std::string> MakeJobFolder(const std::string& job) {
  const char* const cache = getenv("XDG_CACHE_HOME");
  const char* const home = getenv("HOME");
  std::string path = cache != nullptr && *cache != '\0' ? cache : absl::StrCat(home == nullptr ? "" : home, "/.cache");
  for (const std::string& folder : {std::string(), std::string("/ddprun"), std::string("/jobs"),
                                    absl::StrCat("/", absl::StrReplaceAll(job, {{"/", "_"}}))}) {
    path += folder;
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoStatus(errno, path);
  }
  return path;
}

}  // namespace ddprun::launcher
