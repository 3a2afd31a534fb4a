#include "rendezvous/daemon/event_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/counted.h"
#include "base/log.h"
#include "base/steady_time.h"
#include "rendezvous/daemon/event_line.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kReadAtOnce = 256;
constexpr std::streamoff kTailBytes = 4 << 20;  // covers all restored events unless tracebacks are long
// The events of a burst are written together: the first at once, so that a server that is killed early leaves a file
// that its successor completes; the next ones this long after the last write.
constexpr absl::Duration kGather = absl::Milliseconds(50);

bool IsFile(int fd) {
  struct stat found = {};
  return fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
}

// The last whole lines of the file.
std::string ReadTail(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (size <= 0) return "";
  const std::streamoff begin = std::max<std::streamoff>(size - kTailBytes, 0);
  std::string tail(static_cast<size_t>(size - begin), '\0');
  file.seekg(begin);
  file.read(tail.data(), static_cast<std::streamsize>(tail.size()));
  tail.resize(static_cast<size_t>(file.gcount()));
  return begin == 0 ? tail : tail.substr(std::min(tail.find('\n'), tail.size()));
}

int OpenToAppend(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Open(const std::string& path, EventLog* log) {
  const int fd = OpenToAppend(path);
  if (fd < 0) return absl::InvalidArgumentError(absl::StrCat("can't open --event-log ", path, ": ", strerror(errno)));
  return std::unique_ptr<EventFile>(new EventFile(path, fd, log));
}

EventFile::EventFile(const std::string& path, int fd, EventLog* log)
    : path_(path), log_(log), fd_(fd), written_(log->restored()) {
  watch_ = log_->AddWatch([this] { Wake(); });
  thread_ = std::thread([this] { Run(); });
}

EventFile::~EventFile() {
  watch_.Reset();
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
  if (fd_ >= 0) close(fd_);
}

void EventFile::Wake() {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(new_events_, true)) return;
  }
  changed_.NotifyAll();
}

void EventFile::Reopen() {
  {
    MutexLock lock(&mutex_);
    reopen_ = true;
  }
  changed_.NotifyAll();
}

uint64_t EventFile::lost() const {
  MutexLock lock(&mutex_);
  return lost_;
}

void EventFile::Run() {
  WriteMissing();
  SteadyTime gathered = SteadyNow();
  bool stop = false;
  while (!stop) {
    bool reopen = false;
    {
      MutexLock lock(&mutex_);
      while (!new_events_ && !reopen_ && !stop_) changed_.Wait(&mutex_);
      while (!reopen_ && !stop_ && SteadyNow() < gathered) changed_.WaitUntil(&mutex_, gathered);
      new_events_ = false;
      reopen = std::exchange(reopen_, false);
      stop = stop_;
    }
    if (reopen) ReopenNow();
    WriteNew();
    gathered = SteadyNow() + kGather;
  }
}

void EventFile::WriteMissing() {
  const std::string tail = IsFile(fd_) ? ReadTail(path_) : "";
  std::string oldest;
  std::map<std::string, int> written;  // by EventLineKey::text
  for (const absl::string_view line : absl::StrSplit(tail, '\n', absl::SkipEmpty())) {
    const EventLineKey key = KeyOfEventLine(line);
    if (oldest.empty()) oldest = key.time;
    ++written[key.text];
  }
  if (oldest.empty()) return;  // a new file, or the old one was moved away and may have had them
  std::string lines;
  for (const auto& logged : log_->Read(0, EventLog::kCapacity)) {
    if (logged->number > log_->restored()) break;
    const std::string line = EventLine(*logged);
    const EventLineKey key = KeyOfEventLine(line);
    if (key.time < oldest || written[key.text]-- > 0) continue;
    lines += line;
  }
  if (!lines.empty()) Write(lines);
}

void EventFile::WriteNew() {
  for (EventLog::Events events = log_->Read(written_, kReadAtOnce); !events.empty();
       events = log_->Read(written_, kReadAtOnce)) {
    const bool is_file = IsFile(fd_);
    std::string lines;
    for (const auto& logged : events) {
      const uint64_t missing = logged->number - written_ - 1;
      written_ = logged->number;
      if (missing > 0) CountLost(missing, "this thread was too slow");
      lines += EventLine(*logged);
      // A pipe takes a short write whole or not at all.
      if (!is_file) Write(std::exchange(lines, ""));
    }
    if (!lines.empty()) Write(lines);
  }
}

void EventFile::Write(const std::string& lines) {
  if (fd_ < 0) ReopenNow();
  const ssize_t n = fd_ < 0 ? -1 : write(fd_, lines.data(), lines.size());
  const int error = n < 0 ? errno : ENOSPC;
  const size_t taken = n < 0 ? 0 : static_cast<size_t>(n);
  const size_t whole = taken == 0 ? 0 : lines.rfind('\n', taken - 1) + 1;
  if (whole == lines.size()) {
    if (!std::exchange(failing_, false)) return;
    return Log(LogLevel::kInfo,
               absl::StrCat("writing to the event log ", path_, " again; lost so far: ", Counted(lost(), "event")));
  }
  // An incomplete line would corrupt the next one.
  struct stat now = {};
  const auto half = static_cast<off_t>(taken - whole);
  if (half > 0 && (fstat(fd_, &now) != 0 || ftruncate(fd_, now.st_size - half) != 0)) {
    Log(LogLevel::kWarning, "the event log contains an incomplete line");
  }
  CountLost(std::count(lines.begin() + whole, lines.end(), '\n'), strerror(error));
}

void EventFile::ReopenNow() {
  const int fd = OpenToAppend(path_);
  if (fd < 0) {
    if (fd_ >= 0) Log(LogLevel::kError, absl::StrCat("can't reopen the event log ", path_, ": ", strerror(errno)));
    return;
  }
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

void EventFile::CountLost(uint64_t lines, const std::string& why) {
  if (!std::exchange(failing_, true)) {
    Log(LogLevel::kError, absl::StrCat("can't write to the event log ", path_, ": ", why, "; events are lost"));
  }
  MutexLock lock(&mutex_);
  lost_ += lines;
}

}  // namespace ddprun::rendezvous
