#include "launcher/process/oom.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/process/proc_files.h"

namespace ddprun::launcher {
namespace {

// Value of "oom_kill" in a file of "name number" lines.
std::optional<int64_t> OomKills(const std::string& file) {
  for (const absl::string_view line : absl::StrSplit(ReadSmallFile(file), '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    int64_t count = 0;
    if (words.size() == 2 && words[0] == "oom_kill" && absl::SimpleAtoi(words[1], &count)) return count;
  }
  return std::nullopt;
}

std::optional<int64_t> FirstOf(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    if (const std::optional<int64_t> count = OomKills(file)) return count;
  }
  return std::nullopt;
}

std::optional<int64_t> CgroupKills(const std::string& root) {
  std::optional<int64_t> unified;
  // "4:memory:/path" in version 1, "0::/path" in version 2; both in a hybrid setup, where only one controls memory.
  for (const absl::string_view line : absl::StrSplit(ReadSmallFile(root + "/proc/self/cgroup"), '\n')) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::string& path = fields[2];
    // Inside a container the path may be the host's, while the mount shows our own cgroup.
    if (fields[1] == "memory") {
      const std::string mount = root + "/sys/fs/cgroup/memory";
      if (const auto count = FirstOf({mount + path + "/memory.oom_control", mount + "/memory.oom_control"})) {
        return count;
      }
    } else if (fields[1].empty()) {
      const std::string mount = root + "/sys/fs/cgroup";
      unified = FirstOf({mount + path + "/memory.events", mount + "/memory.events"});
    }
  }
  return unified;
}

}  // namespace

OomSample SampleOom(const std::string& root) { return {CgroupKills(root), OomKills(root + "/proc/vmstat")}; }

std::string OomEvidence(const OomSample& before, const OomSample& after) {
  if (before.in_cgroup && after.in_cgroup && *after.in_cgroup > *before.in_cgroup) {
    return absl::StrCat("out of memory: the kernel killed ", *after.in_cgroup - *before.in_cgroup,
                        " process(es) of this job's memory cgroup while the worker ran");
  }
  if (before.on_host && after.on_host && *after.on_host > *before.on_host) {
    return absl::StrCat("perhaps out of memory: the kernel killed ", *after.on_host - *before.on_host,
                        " process(es) on this host for lack of memory while the worker ran");
  }
  return "";
}

}  // namespace ddprun::launcher
