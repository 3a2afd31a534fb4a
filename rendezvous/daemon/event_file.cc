#include "rendezvous/daemon/event_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/counted.h"
#include "rendezvous/base/log.h"
#include "rendezvous/daemon/event_line.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kReadAtOnce = 256;

int OpenToAppend(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Open(const std::string& path, EventLog* log) {
  const int fd = OpenToAppend(path);
  if (fd < 0) return absl::InvalidArgumentError(absl::StrCat("can't open --event-log ", path, ": ", strerror(errno)));
  return std::unique_ptr<EventFile>(new EventFile(path, fd, log));
}

EventFile::EventFile(const std::string& path, int fd, EventLog* log) : path_(path), log_(log), fd_(fd) {
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
    new_events_ = true;
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
  bool stop = false;
  while (!stop) {
    bool reopen = false;
    {
      MutexLock lock(&mutex_);
      while (!new_events_ && !reopen_ && !stop_) changed_.Wait(&mutex_);
      new_events_ = false;
      reopen = std::exchange(reopen_, false);
      stop = stop_;
    }
    if (reopen) ReopenNow();
    WriteNew();
  }
}

void EventFile::WriteNew() {
  for (EventLog::Events events = log_->Read(written_, kReadAtOnce); !events.empty();
       events = log_->Read(written_, kReadAtOnce)) {
    for (const auto& logged : events) {
      if (logged->number <= log_->restored()) {  // a server before this one has written it
        written_ = logged->number;
        continue;
      }
      if (logged->number > written_ + 1) CountLost(logged->number - written_ - 1, "this thread was too slow");
      written_ = logged->number;
      if (!WriteLine(EventLine(*logged))) {
        CountLost(1, strerror(errno));
      } else if (std::exchange(failing_, false)) {
        Log(LogLevel::kInfo,
            absl::StrCat("writing to the event log ", path_, " again; lost so far: ", Counted(lost(), "event")));
      }
    }
  }
}

bool EventFile::WriteLine(const std::string& line) {
  if (fd_ < 0) ReopenNow();
  if (fd_ < 0) return false;
  struct stat before = {};
  const bool is_file = fstat(fd_, &before) == 0 && S_ISREG(before.st_mode);
  const ssize_t n = write(fd_, line.data(), line.size());
  if (n == static_cast<ssize_t>(line.size())) return true;
  const int error = n < 0 ? errno : ENOSPC;
  // Half a line would spoil the next one.
  if (n > 0 && is_file && ftruncate(fd_, before.st_size) != 0) Log(LogLevel::kWarning, "the event log has half a line");
  errno = error;
  return false;
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
