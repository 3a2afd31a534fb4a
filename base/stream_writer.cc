#include "base/stream_writer.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <deque>
#include <utility>

#include "base/mutex.h"

namespace ddprun {

struct StreamWriter::Shared {
  explicit Shared(Options o) : options(std::move(o)) {}

  // True if there is room to continue after a gap.
  bool HasRoomLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return bytes <= options.max_bytes / 2; }
  void PushLocked(std::string text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    bytes += text.size();
    queue.push_back(std::move(text));
  }
  void EndGapLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (dropped > 0 && HasRoomLocked()) PushLocked(options.gap(std::exchange(dropped, 0)));
  }

  const Options options;
  Mutex mutex;
  CondVar changed;
  std::deque<std::string> queue ABSL_GUARDED_BY(mutex);
  size_t bytes ABSL_GUARDED_BY(mutex) = 0;     // in the queue and being written
  int64_t dropped ABSL_GUARDED_BY(mutex) = 0;  // lines dropped since the last text in the queue
  bool writing ABSL_GUARDED_BY(mutex) = false;
  bool broken ABSL_GUARDED_BY(mutex) = false;
  bool closing ABSL_GUARDED_BY(mutex) = false;
};

int WriteWhole(int fd, absl::string_view text) {
  while (!text.empty()) {
    absl::string_view piece = text.substr(0, PIPE_BUF);
    const size_t line_end = piece.rfind('\n');
    if (line_end != absl::string_view::npos) piece = piece.substr(0, line_end + 1);
    if (const int error = WriteAll(fd, piece); error != 0) return error;
    text.remove_prefix(piece.size());
  }
  return 0;
}

StreamWriter::StreamWriter(Options options) : shared_(std::make_shared<Shared>(std::move(options))) {
  // Block all signals in the thread; with SIGPIPE blocked, a closed reader is reported by write().
  sigset_t all, saved;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &saved);
  thread_ = std::thread([shared = shared_] { Run(shared); });
  pthread_sigmask(SIG_SETMASK, &saved, nullptr);
}

StreamWriter::~StreamWriter() {
  bool blocked;
  {
    MutexLock lock(&shared_->mutex);
    shared_->closing = true;
    shared_->queue.clear();
    blocked = shared_->writing;
  }
  shared_->changed.NotifyAll();
  if (blocked) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void StreamWriter::Write(absl::string_view text) {
  if (text.empty()) return;
  MutexLock lock(&shared_->mutex);
  if (shared_->broken) return;
  shared_->EndGapLocked();
  if (shared_->dropped > 0 || shared_->bytes + text.size() > shared_->options.max_bytes) {
    shared_->dropped += std::max<int64_t>(1, std::count(text.begin(), text.end(), '\n'));
    return;
  }
  shared_->PushLocked(std::string(text));
  shared_->changed.NotifyAll();
}

size_t StreamWriter::waiting_bytes() {
  MutexLock lock(&shared_->mutex);
  return shared_->bytes;
}

bool StreamWriter::Flush(SteadyTime deadline) {
  MutexLock lock(&shared_->mutex);
  while (shared_->writing || !shared_->queue.empty()) {
    if (SteadyNow() >= deadline) return false;
    shared_->changed.WaitUntil(&shared_->mutex, deadline);
  }
  return true;
}

void StreamWriter::Run(const std::shared_ptr<Shared>& shared) {
  while (true) {
    std::string text;
    {
      MutexLock lock(&shared->mutex);
      while (shared->queue.empty() && !shared->closing) shared->changed.Wait(&shared->mutex);
      if (shared->closing) return;
      text = std::move(shared->queue.front());
      shared->queue.pop_front();
      shared->writing = true;
    }
    const int error = WriteWhole(shared->options.fd, text);
    const bool broke = error == EPIPE || error == EBADF || error == EIO;
    if (broke && shared->options.on_broken) shared->options.on_broken(error);
    MutexLock lock(&shared->mutex);
    shared->writing = false;
    shared->bytes -= text.size();
    if (broke) {
      shared->broken = true;
      shared->queue.clear();
      shared->bytes = 0;
      shared->dropped = 0;
    }
    shared->EndGapLocked();
    shared->changed.NotifyAll();
    if (shared->options.drained_event >= 0 && shared->queue.empty()) eventfd_write(shared->options.drained_event, 1);
  }
}

int WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(written);
    } else if (errno == EAGAIN) {
      pollfd room{fd, POLLOUT, 0};
      poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace ddprun
