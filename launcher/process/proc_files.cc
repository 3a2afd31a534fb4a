#include "launcher/process/proc_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/io/file_descriptor.h"

namespace ddprun::launcher {

std::string ReadSmallFile(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string content;
  if (!fd.valid()) return content;
  char buffer[4096];
  while (true) {
    const ssize_t got = read(fd.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return content;
    content.append(buffer, got);
  }
}

std::vector<std::string> OwnCommandLine() {
  const std::string text = ReadSmallFile("/proc/self/cmdline");
  return absl::StrSplit(absl::StripSuffix(text, absl::string_view("\0", 1)), '\0');
}

namespace {

// Field `number` of /proc/PID/stat, numbered as in proc(5), from 3 on; 0 if it can't be read.
int64_t FieldOfStat(absl::string_view stat, size_t number) {
  // "pid (name) state ppid ...": only the name may contain blanks and parentheses.
  const size_t name_end = stat.rfind(')');
  if (name_end == absl::string_view::npos) return 0;
  const std::vector<absl::string_view> fields = absl::StrSplit(stat.substr(name_end + 1), ' ');
  int64_t value = 0;
  return fields.size() > number - 2 && absl::SimpleAtoi(fields[number - 2], &value) ? value : 0;
}

// True if the signal is in this mask of /proc/PID/status.
bool HasInMask(pid_t pid, absl::string_view name, int signal) {
  uint64_t mask = 0;
  return absl::SimpleHexAtoi(StatusField(StatusOf(pid), name), &mask) && (mask >> (signal - 1) & 1) != 0;
}

std::string StatOf(pid_t pid) { return ReadSmallFile(absl::StrCat("/proc/", pid, "/stat")); }

}  // namespace

std::string StatusOf(pid_t pid) { return ReadSmallFile(absl::StrCat("/proc/", pid, "/status")); }

std::string StatusField(absl::string_view status, absl::string_view name) {
  for (absl::string_view line : absl::StrSplit(status, '\n')) {
    if (!absl::ConsumePrefix(&line, name) || !absl::ConsumePrefix(&line, ":")) continue;
    return std::string(absl::StripAsciiWhitespace(line));
  }
  return "";
}

pid_t ParentOf(pid_t pid) { return static_cast<pid_t>(FieldOfStat(StatOf(pid), 4)); }

bool IsZombie(pid_t pid) {
  const std::string stat = StatOf(pid);
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.substr(name_end + 1, 2) == " Z";
}

absl::Duration CpuTimeOf(pid_t pid) {
  const std::string stat = StatOf(pid);
  int64_t ticks = 0;
  for (size_t field = 14; field <= 17; ++field) ticks += FieldOfStat(stat, field);
  return absl::Seconds(static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK)));
}

absl::Duration CpuTimeOfSession(pid_t session) {
  absl::Duration time;
  for (const pid_t pid : AllProcesses()) {
    if (getsid(pid) == session) time += CpuTimeOf(pid);
  }
  return time;
}

namespace {

// The numbers among the names of a folder's entries.
std::vector<pid_t> NumbersIn(const std::string& path) {
  std::vector<pid_t> pids;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
  if (folder == nullptr) return pids;
  while (const dirent* entry = readdir(folder.get())) {
    int pid = 0;
    if (absl::SimpleAtoi(entry->d_name, &pid) && pid > 0) pids.push_back(pid);
  }
  return pids;
}

// Appends the pids in a file "children" of a thread.
void AppendChildren(const std::string& path, std::vector<pid_t>* children) {
  for (const absl::string_view word : absl::StrSplit(ReadSmallFile(path), ' ', absl::SkipWhitespace())) {
    int pid = 0;
    if (absl::SimpleAtoi(word, &pid)) children->push_back(pid);
  }
}

}  // namespace

std::vector<pid_t> AllProcesses() { return NumbersIn("/proc"); }

std::vector<pid_t> DescendantsOf(pid_t pid, size_t most) {
  // The kernel may be built without CONFIG_PROC_CHILDREN.
  const std::string own = absl::StrCat("/proc/self/task/", getpid(), "/children");
  const std::vector<pid_t> all = access(own.c_str(), R_OK) == 0 ? std::vector<pid_t>() : AllProcesses();
  std::vector<pid_t> found = {pid};
  for (size_t i = 0; i < found.size() && found.size() <= most; ++i) {
    const pid_t parent = found[i];
    const std::string tasks = absl::StrCat("/proc/", parent, "/task");
    if (all.empty()) {
      for (const pid_t thread : NumbersIn(tasks)) AppendChildren(absl::StrCat(tasks, "/", thread, "/children"), &found);
    } else {
      std::copy_if(all.begin(), all.end(), std::back_inserter(found),
                   [parent](pid_t other) { return ParentOf(other) == parent; });
    }
  }
  found.resize(std::min(found.size(), most + 1));
  found.erase(found.begin());
  return found;
}

std::vector<pid_t> ChildrenOfMainThread() {
  std::vector<pid_t> children;
  const pid_t self = getpid();
  const std::string path = absl::StrCat("/proc/self/task/", self, "/children");
  if (access(path.c_str(), R_OK) != 0) {
    // The kernel was built without CONFIG_PROC_CHILDREN.
    for (const pid_t pid : AllProcesses()) {
      if (ParentOf(pid) == self) children.push_back(pid);
    }
    return children;
  }
  AppendChildren(path, &children);
  return children;
}

std::string VariableOfProcess(pid_t pid, absl::string_view name) {
  const std::string environment = ReadSmallFile(absl::StrCat("/proc/", pid, "/environ"));
  for (absl::string_view variable : absl::StrSplit(environment, '\0')) {
    if (absl::ConsumePrefix(&variable, name) && absl::ConsumePrefix(&variable, "=")) return std::string(variable);
  }
  return "";
}

std::vector<pid_t> ProgramsBelowShell(pid_t pid) {
  static constexpr absl::string_view kShells[] = {"sh",   "bash", "dash", "ash",     "ksh",  "ksh93",
                                                  "mksh", "zsh",  "fish", "busybox", "tcsh", "csh"};
  const auto is_shell = [](pid_t process) {
    char file[PATH_MAX] = "";
    (void)!readlink(absl::StrCat("/proc/", process, "/exe").c_str(), file, sizeof file - 1);
    const absl::string_view name = absl::string_view(file).substr(absl::string_view(file).rfind('/') + 1);
    return std::find(std::begin(kShells), std::end(kShells), name) != std::end(kShells);
  };
  std::vector<pid_t> found = {pid}, group;
  if (is_shell(pid)) group = AllProcesses();
  std::erase_if(group, [pid](pid_t other) { return other == pid || getpgid(other) != pid; });
  for (size_t i = 0; i < found.size(); ++i) {
    const pid_t parent = found[i];
    if (!group.empty() && is_shell(parent)) {
      std::copy_if(group.begin(), group.end(), std::back_inserter(found),
                   [parent](pid_t other) { return ParentOf(other) == parent; });
    }
  }
  found.erase(found.begin());
  return found;
}

bool IgnoresSignal(pid_t pid, int signal) { return HasInMask(pid, "SigIgn", signal); }

bool SurvivesSignal(pid_t pid, int signal) { return IgnoresSignal(pid, signal) || HasInMask(pid, "SigCgt", signal); }

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
