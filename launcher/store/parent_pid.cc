#include "launcher/store/parent_pid.h"

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "launcher/os/proc_files.h"

namespace ddprun::launcher {

uint32_t ParentPid(uint32_t pid) {
  const std::string line = ReadSmallFile(absl::StrCat("/proc/", pid, "/stat"));
  // "pid (name) state ppid ...": the name may hold blanks and brackets, what follows may not.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  const std::vector<absl::string_view> fields = absl::StrSplit(absl::string_view(line).substr(name_end + 1), ' ');
  uint32_t parent = 0;
  return fields.size() > 2 && absl::SimpleAtoi(fields[2], &parent) ? parent : 0;
}

}  // namespace ddprun::launcher
