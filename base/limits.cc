#include "base/limits.h"

#include <pthread.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/mutex.h"

namespace ddprun {
namespace {

std::optional<rlimit> inherited;  // written before other threads exist
std::atomic<bool> ran_out{false};

}  // namespace

void RaiseFileLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  const rlimit before = limit;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0) inherited = before;
}

std::optional<rlimit> InheritedFileLimit() { return inherited; }

void ReportOutOfFiles() {
  if (!ran_out.exchange(true)) Log(LogLevel::kError, OutOfFilesText());
}

bool RanOutOfFiles() { return ran_out.load(); }

std::string OutOfFilesText() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return absl::StrCat("out of file descriptors (limit ", limit.rlim_cur,
                      "): raise 'ulimit -n' (the hard limit) on this host and start again");
}

namespace {

// First word of a file; empty if it can't be read.
std::string WordOf(const std::string& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

// pids.max of this process's cgroup; empty if there is none.
std::string CgroupLimit() {
  std::ifstream file("/proc/self/cgroup");
  std::string limit;
  for (std::string line; std::getline(file, line);) {
    // "8:pids:/path" in version 1, "0::/path" in version 2. In a container the path may be the host's.
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3 || (fields[1] != "pids" && !fields[1].empty())) continue;
    const std::string mount = absl::StrCat("/sys/fs/cgroup/", fields[1]);
    for (const std::string& folder : {mount + fields[2], mount}) {
      if (limit.empty() || limit == "max") limit = WordOf(folder + "/pids.max");
    }
  }
  return limit == "max" ? "" : limit;
}

void* WaitForUnlock(void* mutex) {
  MutexLock lock(static_cast<Mutex*>(mutex));
  return nullptr;
}

}  // namespace

std::string ProcessLimitText(int error_number) {
  if (error_number == EPERM) {
    return "refused by a seccomp filter (of the container runtime, which may be older than the C library and not know "
           "clone3); update the runtime, or change its profile";
  }
  if (error_number != EAGAIN) return strerror(error_number);
  rlimit limit{};
  getrlimit(RLIMIT_NPROC, &limit);
  const std::string of_user = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : absl::StrCat(limit.rlim_cur);
  const std::string of_cgroup = CgroupLimit();
  return absl::StrCat("too many processes and threads (ulimit -u: ", of_user,
                      of_cgroup.empty() ? "" : "; pids.max: ", of_cgroup, "), or too little memory; raise the limit");
}

absl::Status CheckThreads(int count) {
  Mutex mutex;
  std::vector<pthread_t> threads;
  int error = 0;
  {
    MutexLock lock(&mutex);
    while (error == 0 && threads.size() < static_cast<size_t>(count)) {
      pthread_t thread;
      error = pthread_create(&thread, nullptr, &WaitForUnlock, &mutex);
      if (error == 0) threads.push_back(thread);
    }
  }
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  if (error == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("can't start ", count, " threads: ", ProcessLimitText(error)));
}

}  // namespace ddprun
