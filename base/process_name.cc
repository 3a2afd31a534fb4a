#include "base/process_name.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

// Common prefix of the names of all processes in this pid namespace and boot.
std::string Prefix() {
  std::string boot_id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot_id);
  struct stat pids = {};
  if (boot_id.empty() || stat("/proc/self/ns/pid", &pids) != 0) return "";
  return absl::StrCat(boot_id, " ", pids.st_ino, " ");
}

}  // namespace

std::string ProcessName() {
  const std::string prefix = Prefix();
  return prefix.empty() ? "" : absl::StrCat(prefix, getpid());
}

pid_t PidOfProcess(absl::string_view name) {
  const std::string prefix = Prefix();
  pid_t pid = 0;
  if (prefix.empty() || !absl::StartsWith(name, prefix)) return 0;
  return absl::SimpleAtoi(name.substr(prefix.size()), &pid) && pid > 0 ? pid : 0;
}

}  // namespace ddprun
