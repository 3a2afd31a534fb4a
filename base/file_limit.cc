#include "base/file_limit.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "base/log.h"

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

}  // namespace ddprun
