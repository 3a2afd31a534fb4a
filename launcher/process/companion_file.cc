#include "launcher/process/companion_file.h"

#include <limits.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ddprun::launcher {

absl::StatusOr<std::string> CompanionFile(const std::string& name) {
  char executable[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", executable, sizeof executable);
  if (size <= 0) return absl::InvalidArgumentError(absl::StrCat("can't look for ", name, ": no /proc/self/exe"));
  const std::string folder = std::string(executable, size).substr(0, std::string(executable, size).rfind('/'));
  const std::string beside = absl::StrCat(folder, "/", name);
  if (access(beside.c_str(), R_OK) == 0) return beside;
  const std::string prefix = folder.substr(0, folder.rfind('/'));
  const std::string installed = absl::StrCat(prefix, "/lib/", name);
  if (access(installed.c_str(), R_OK) == 0) return installed;
  return absl::InvalidArgumentError(absl::StrCat(beside, " is missing, and so is ", installed));
}

}  // namespace ddprun::launcher
