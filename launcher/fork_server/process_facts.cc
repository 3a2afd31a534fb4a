#include "launcher/fork_server/process_facts.h"

#include <linux/keyctl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/file_limit.h"
#include "base/version.h"
#include "launcher/os/proc_files.h"

namespace ddprun::launcher {
namespace {

constexpr const char* kNamespaces[] = {"cgroup", "ipc", "mnt", "net", "pid_for_children", "time_for_children",
                                       "user",   "uts"};
constexpr const char* kStatusLines[] = {
    "Umask:",  "Uid:",    "Gid:",        "Groups:",  "CapInh:",          "CapPrm:",       "CapEff:",
    "CapBnd:", "CapAmb:", "NoNewPrivs:", "Seccomp:", "Seccomp_filters:", "Cpus_allowed:", "Mems_allowed:"};
constexpr const char* kFiles[] = {"cgroup",   "oom_score_adj", "coredump_filter", "attr/current",
                                  "loginuid", "sessionid",     "personality",     "timerslack_ns"};
// Jobs of batch systems, whose processes are accounted and killed by job.
constexpr const char* kJobVariables[] = {"SLURM_JOB_ID", "SLURM_STEP_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"};

}  // namespace

std::string StampText(const std::string& file) {
  struct stat status = {};
  if (stat(file.c_str(), &status) != 0) return "";
  return absl::StrCat(status.st_dev, " ", status.st_ino, " ", status.st_size, " ", status.st_mtim.tv_sec, " ",
                      status.st_mtim.tv_nsec, " ", status.st_ctim.tv_sec, " ", status.st_ctim.tv_nsec);
}

std::vector<std::string> ProcessFacts() {
  std::vector<std::string> facts;
  const auto add = [&](absl::string_view name, absl::string_view value) {
    const std::string line = absl::StrReplaceAll(absl::StripAsciiWhitespace(value), {{"\n", "|"}});
    facts.push_back(absl::StrCat(name, " ", absl::StrReplaceAll(line, {{absl::string_view("\0", 1), ""}})));
  };
  add("ddprun", absl::StrCat(kVersion, " ", StampText("/proc/self/exe")));
  for (const char* const name : kNamespaces) {
    char target[64] = "";
    if (readlink(absl::StrCat("/proc/self/ns/", name).c_str(), target, sizeof target - 1) < 0) continue;
    add(absl::StrCat(name, "-namespace"), target);
  }
  struct stat root = {};
  if (stat("/", &root) == 0) add("root-folder", absl::StrCat(root.st_dev, " ", root.st_ino));
  for (const char* const name : kFiles) add(name, ReadSmallFile(absl::StrCat("/proc/self/", name)));
  const std::string status = ReadSmallFile("/proc/self/status");
  for (const absl::string_view line : absl::StrSplit(status, '\n')) {
    for (const char* const name : kStatusLines) {
      if (absl::StartsWith(line, name)) add(absl::StripSuffix(name, ":"), line);
    }
  }
  for (int resource = 0; resource < RLIM_NLIMITS; ++resource) {
    if (resource == RLIMIT_RTTIME) continue;  // the mark of an outer launcher, see guard.h
    rlimit limit{};
    getrlimit(static_cast<__rlimit_resource>(resource), &limit);
    const std::optional<rlimit> inherited = InheritedFileLimit();
    if (resource == RLIMIT_NOFILE && inherited) limit = *inherited;
    add(absl::StrCat("limit-", resource), absl::StrCat(limit.rlim_cur, " ", limit.rlim_max));
  }
  add("nice", absl::StrCat(getpriority(PRIO_PROCESS, 0), " ", sched_getscheduler(0)));
  add("keyring", absl::StrCat(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0)));
  add("huge-pages", absl::StrCat(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0)));
  for (const char* const name : kJobVariables) {
    const char* const value = getenv(name);
    add(name, value == nullptr ? "" : value);
  }
  return facts;
}

}  // namespace ddprun::launcher
