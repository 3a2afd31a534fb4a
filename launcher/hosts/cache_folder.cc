#include "launcher/hosts/cache_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "launcher/os/errno_status.h"
#include "launcher/os/unique_fd.h"

namespace ddprun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kKeepCopies = absl::Hours(30 * 24);
constexpr absl::Duration kKeepJobs = absl::Hours(90 * 24);
constexpr absl::Duration kKeepTokens = absl::Hours(365 * 24);
constexpr char kFolder[] = "ddprun";
constexpr char kProgram[] = "ddprun";
constexpr char kUsed[] = ".used";  // in a copy: locked by the processes that use it, written when one starts
constexpr char kToken[] = "token";

// "1.2.3-0123456789abcdef", as HostsLauncher names the folder of a copy.
bool IsNameOfCopy(absl::string_view name) {
  const size_t dash = name.rfind('-');
  if (dash == absl::string_view::npos || dash == 0 || !absl::ascii_isdigit(name.front())) return false;
  const absl::string_view digest = name.substr(dash + 1);
  return digest.size() == 16 && std::all_of(digest.begin(), digest.end(), absl::ascii_isxdigit);
}

// A real folder (no link) of this user.
bool IsOwnFolder(const fs::path& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

std::vector<fs::path> EntriesOf(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    entries.push_back(i->path());
  }
  return entries;
}

absl::Time LastWrite(const fs::path& folder) {
  absl::Time newest = absl::InfinitePast();
  std::vector<fs::path> paths = EntriesOf(folder);
  paths.push_back(folder);
  for (const fs::path& path : paths) {
    struct stat info;
    if (lstat(path.c_str(), &info) == 0) newest = std::max(newest, absl::TimeFromTimespec(info.st_mtim));
  }
  return newest;
}

// True if no process uses the files; false if that is unknown. The locks must be held until they are removed.
bool LockAll(const std::vector<fs::path>& files, std::vector<UniqueFd>* locks) {
  for (const fs::path& file : files) {
    UniqueFd fd(open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!fd.valid() || flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return false;
    locks->push_back(std::move(fd));
  }
  return true;
}

void RemoveCopy(const fs::path& folder, absl::Time now) {
  if (!IsNameOfCopy(folder.filename().string()) || !IsOwnFolder(folder) || now - LastWrite(folder) < kKeepCopies) {
    return;
  }
  std::vector<UniqueFd> locks;
  std::error_code error;
  // An incomplete copy was never used.
  if (fs::exists(folder / kProgram, error) && !LockAll({folder / kUsed}, &locks)) return;
  if (now - LastWrite(folder) < kKeepCopies) return;
  // The program first: a copy without it is copied again.
  fs::remove(folder / kProgram, error);
  fs::remove_all(folder, error);
}

void RemoveJob(const fs::path& folder, absl::Time now) {
  std::error_code error;
  const absl::Duration keep = fs::exists(folder / kToken, error) ? kKeepTokens : kKeepJobs;
  if (!IsOwnFolder(folder) || now - LastWrite(folder) < keep) return;
  std::vector<UniqueFd> locks;
  if (LockAll(EntriesOf(folder), &locks)) fs::remove_all(folder, error);
}

}  // namespace

std::string CacheFolder() {
  const char* const cache = getenv("XDG_CACHE_HOME");
  const char* const home = getenv("HOME");
  return absl::StrCat(cache != nullptr && *cache != '\0' ? cache : absl::StrCat(home == nullptr ? "" : home, "/.cache"),
                      "/", kFolder);
}

absl::StatusOr<std::string> MakeJobFolder(const std::string& job) {
  const fs::path cache = CacheFolder();
  const fs::path folder = cache / "jobs" / absl::StrReplaceAll(job, {{"/", "_"}});
  for (const fs::path& path : {cache.parent_path(), cache, folder.parent_path(), folder}) {
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoStatus(errno, path.string());
  }
  return folder.string();
}

void HoldJobFile(int fd) { flock(fd, LOCK_SH | LOCK_NB); }

void HoldProgramCopy() {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (!IsNameOfCopy(folder.filename().string()) || folder.parent_path().filename() != kFolder) return;
  const int fd = open((folder / kUsed).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return;  // not writable for us, so not ours to remove
  flock(fd, LOCK_SH | LOCK_NB);
  futimens(fd, nullptr);  // stays open
}

void RemoveOldCacheFiles(const std::string& cache, absl::Time now) {
  for (const fs::path& path : EntriesOf(cache)) RemoveCopy(path, now);
  for (const fs::path& path : EntriesOf(fs::path(cache) / "jobs")) RemoveJob(path, now);
}

}  // namespace ddprun::launcher
