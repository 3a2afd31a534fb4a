#include "launcher/io/log_pump.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "base/stream_writer.h"
#include "base/text.h"
#include "launcher/config/output_settings.h"
#include "launcher/io/file_descriptor.h"

namespace ddprun::launcher {
namespace {

// Long lines are rare and streams many, so larger buffers are freed.
constexpr size_t kKeptBytes = 64 * 1024;

constexpr size_t kPipeBytes = 65536;  // the usual capacity

void AppendTail(absl::string_view bytes, size_t max, std::string* tail) {
  bytes.remove_prefix(bytes.size() - std::min(bytes.size(), max));
  tail->erase(0, tail->size() - std::min(tail->size(), max - bytes.size()));
  tail->append(bytes.data(), bytes.size());
}

// Removes the first line of a tail of `max` bytes, which may be cut, unless it is the only one.
void RemoveCutLine(size_t max, std::string* tail) {
  const size_t line = tail->size() < max ? std::string::npos : tail->find('\n');
  if (line != std::string::npos && line + 1 < tail->size()) tail->erase(0, line + 1);
}

// See PipeTail::Since.
constexpr absl::Duration kTimeStep = absl::Seconds(1);
constexpr size_t kMostTimes = 3600;

constexpr size_t kReadSize = 64 * 1024;
// Read at most this much from each stream at the end: the maximum capacity of a pipe.
constexpr size_t kLastReads = 1024 * 1024 / kReadSize;
// Limit for the thread to finish after the give_up event.
constexpr absl::Duration kGiveUpTime = absl::Milliseconds(500);

void RaiseEvent(const UniqueFd& event) {
  const uint64_t one = 1;
  while (write(event.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

std::unique_ptr<StreamWriter> NewConsole(int fd) {
  StreamWriter::Options options;
  options.fd = fd;
  options.max_bytes = LogPump::kConsoleBytes;
  options.gap = [](int64_t lines) {
    return absl::StrCat("ddprun: ", Counted(lines, "line"), " of output not shown: the terminal did not read them\n");
  };
  options.on_broken = [](int error) {
    Log(LogLevel::kWarning, absl::StrCat("no longer showing the workers' output: ", strerror(error)));
  };
  return std::make_unique<StreamWriter>(std::move(options));
}

// A log file whose write errors are reported once.
class LogFile {
 public:
  explicit LogFile(LogSink::File file) : file_(std::move(file)) {}

  // Returns false if nothing reads a pipe or socket any more.
  bool Write(absl::string_view bytes) {
    if (!file_.fd.valid()) return true;
    while (!bytes.empty()) {
      const ssize_t written = write(file_.fd.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && errno == EAGAIN) {  // the launcher's own stream was made non-blocking by another process
        pollfd writable = {file_.fd.get(), POLLOUT, 0};
        poll(&writable, 1, -1);
        continue;
      }
      if (written <= 0) {
        if (errno == EPIPE || errno == ECONNRESET) return false;
        if (!std::exchange(warned_, true)) {
          Log(LogLevel::kWarning,
              absl::StrCat("log file ", file_.name, ": ", strerror(errno), "; some output is missing in it"));
        }
        return true;
      }
      bytes.remove_prefix(written);
    }
    return true;
  }

 private:
  const LogSink::File file_;
  bool warned_ = false;
};

struct Stream {
  Stream(UniqueFd pipe_end, std::shared_ptr<PipeTail> its_tail, LogSink sink, StreamWriter* its_console)
      : pipe(std::move(pipe_end)),
        tail(std::move(its_tail)),
        passes_on(sink.passes_on),
        file(std::move(sink.file)),
        filtered(std::move(sink.filtered)),
        console(its_console),
        prefixer(std::move(sink.prefix), LinePrefixer::kMaxLine, [] { return UtcText(absl::Now()); }) {
    prefixer.SetFilters(std::move(sink.filters));
  }

  ~Stream() {
    if (tail != nullptr) tail->End();
  }

  ssize_t Read(std::vector<char>* buffer) const {
    return tail != nullptr ? tail->Read(buffer->data(), buffer->size())
                           : read(pipe.get(), buffer->data(), buffer->size());
  }

  void WriteLines(const std::string& lines, const std::string& matching) {
    console->Write(lines);
    filtered.Write(matching);
  }

  const UniqueFd pipe;
  const std::shared_ptr<PipeTail> tail;  // null: not kept
  const bool passes_on;
  LogFile file;
  LogFile filtered;
  StreamWriter* const console;  // null: none
  LinePrefixer prefixer;
};

}  // namespace

LinePrefixer::LinePrefixer(std::string prefix, size_t max_line, std::function<std::string()> time)
    : prefix_(std::move(prefix)),
      max_line_(max_line),
      time_(absl::StrContains(prefix_, kTimeMacro) ? std::move(time) : nullptr) {}

void LinePrefixer::Feed(absl::string_view bytes, std::string* out, std::string* matching) {
  while (!bytes.empty()) {
    if (std::exchange(after_return_, false) && bytes.front() == '\n') {
      out->push_back('\n');
      if (matching != nullptr && matched_) matching->push_back('\n');
      bytes.remove_prefix(1);
      continue;
    }
    const size_t room = max_line_ - line_.size();
    const size_t end = bytes.substr(0, room + 1).find_first_of("\n\r");
    if (end != absl::string_view::npos) {
      after_return_ = bytes[end] == '\r';
      Emit(bytes.substr(0, end + 1), out, matching);
      bytes.remove_prefix(end + 1);
    } else if (bytes.size() > room) {
      Emit(absl::StrCat(bytes.substr(0, room), "\n"), out, matching);
      bytes.remove_prefix(room);
    } else {
      line_.append(bytes.data(), bytes.size());
      return;
    }
  }
}

void LinePrefixer::Finish(std::string* out, std::string* matching) {
  if (line_.empty()) return;
  Emit("\n", out, matching);
}

void LinePrefixer::Emit(absl::string_view rest, std::string* out, std::string* matching) {
  const size_t begin = out->size();
  out->append(time_ ? absl::StrReplaceAll(prefix_, {{kTimeMacro, time_()}}) : prefix_);
  const size_t text = out->size();
  out->append(line_);
  out->append(rest.data(), rest.size());
  line_.clear();
  if (line_.capacity() > kKeptBytes) line_.shrink_to_fit();
  const absl::string_view line = absl::string_view(*out).substr(text);
  matched_ = std::any_of(filters_.begin(), filters_.end(),
                         [line](const std::string& filter) { return absl::StrContains(line, filter); });
  if (matching != nullptr && matched_) matching->append(*out, begin);
}

ssize_t PipeTail::Read(char* buffer, size_t size) {
  MutexLock lock(&mutex_);
  const ssize_t got = read(pipe_, buffer, size);
  if (got <= 0) return got;
  const SteadyTime now = SteadyNow();
  if (times_.empty() || now >= times_.back().first + kTimeStep) times_.emplace_back(now, end_);
  if (times_.size() > kMostTimes) times_.pop_front();
  kept_.append(buffer, got);
  end_ += static_cast<uint64_t>(got);
  // Rarely, because it moves all of it.
  if (kept_.size() > 2 * kKeptBytes) kept_.erase(0, kept_.size() - kKeptBytes);
  return got;
}

uint64_t PipeTail::end() const {
  MutexLock lock(&mutex_);
  return end_;
}

std::string PipeTail::From(uint64_t from, size_t max, uint64_t* begin) const {
  MutexLock lock(&mutex_);
  *begin = std::min(std::max(from, end_ - kept_.size()), end_);
  return kept_.substr(kept_.size() - (end_ - *begin), max);
}

uint64_t PipeTail::Since(SteadyTime time) const {
  MutexLock lock(&mutex_);
  for (const auto& [at, position] : times_) {
    if (at + kTimeStep > time) return position;
  }
  return end_;
}

void PipeTail::End() {
  MutexLock lock(&mutex_);
  pipe_ = -1;
}

std::string PipeTail::Text(size_t max) const {
  MutexLock lock(&mutex_);
  std::string text;
  AppendTail(kept_, max, &text);
  int ends[2];
  if (pipe_ >= 0 && pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0) {
    const UniqueFd copy(ends[0]), into(ends[1]);
    const ssize_t unread = tee(pipe_, into.get(), kPipeBytes, SPLICE_F_NONBLOCK);
    std::string buffer(std::max<ssize_t>(unread, 0), '\0');
    const ssize_t got = read(copy.get(), buffer.data(), buffer.size());
    if (got > 0) AppendTail(absl::string_view(buffer).substr(0, got), max, &text);
  }
  RemoveCutLine(max, &text);
  return text;
}

std::string ReadFileTail(const std::string& path, int64_t from) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status = {};
  if (!file.valid() || fstat(file.get(), &status) != 0 || status.st_size <= from) return "";
  std::string text(std::min<int64_t>(status.st_size - from, kOutputTailBytes), '\0');
  const ssize_t got = pread(file.get(), text.data(), text.size(), status.st_size - static_cast<int64_t>(text.size()));
  text.resize(std::max<ssize_t>(got, 0));
  RemoveCutLine(kOutputTailBytes, &text);
  return text;
}

struct LogPump::Shared {
  std::map<int, std::unique_ptr<StreamWriter>> consoles;  // keyed by descriptor; the launcher's thread adds entries
  UniqueFd wake;                                          // eventfd: the members below have changed
  UniqueFd give_up;                                       // eventfd, never reset: finish without waiting
  Mutex mutex;
  CondVar changed;
  std::vector<std::unique_ptr<Stream>> added ABSL_GUARDED_BY(mutex);
  bool draining ABSL_GUARDED_BY(mutex) = false;
  bool finished ABSL_GUARDED_BY(mutex) = false;
  bool all_ended ABSL_GUARDED_BY(mutex) = false;
};

// Body of the pump's thread.
class LogPump::Pump {
 public:
  explicit Pump(std::shared_ptr<Shared> shared) : shared_(std::move(shared)), buffer_(kReadSize) {}

  void Run() {
    bool gave_up = false;
    while (!gave_up) {
      const bool draining = TakeAdded();
      if (draining && streams_.empty()) break;
      gave_up = !PollOnce();
    }
    if (gave_up) {
      TakeAdded();
      FinishAtOnce();
    }
    MutexLock lock(&shared_->mutex);
    shared_->finished = true;
    shared_->all_ended = !gave_up;
    shared_->changed.NotifyAll();
  }

 private:
  enum class ReadResult { kData, kNothing, kEnd };

  bool TakeAdded() {
    MutexLock lock(&shared_->mutex);
    for (std::unique_ptr<Stream>& stream : shared_->added) streams_.push_back(std::move(stream));
    shared_->added.clear();
    return shared_->draining;
  }

  // Waits for events and handles them; false when it must give up.
  bool PollOnce() {
    std::vector<pollfd> polled = {{shared_->give_up.get(), POLLIN, 0}, {shared_->wake.get(), POLLIN, 0}};
    for (const std::unique_ptr<Stream>& stream : streams_) polled.push_back({stream->pipe.get(), POLLIN, 0});
    if (poll(polled.data(), polled.size(), -1) < 0) return true;
    if (polled[0].revents != 0) return false;
    if (polled[1].revents != 0) {
      uint64_t count;
      while (read(shared_->wake.get(), &count, sizeof(count)) < 0 && errno == EINTR) {
      }
    }
    for (size_t i = 0; i < streams_.size(); ++i) {
      if (polled[i + 2].revents == 0 || Carry(streams_[i].get()) != ReadResult::kEnd) continue;
      End(streams_[i].get());
      streams_[i].reset();
    }
    streams_.erase(std::remove(streams_.begin(), streams_.end(), nullptr), streams_.end());
    return true;
  }

  void FinishAtOnce() {
    for (const std::unique_ptr<Stream>& stream : streams_) {
      for (size_t i = 0; i < kLastReads && Carry(stream.get()) == ReadResult::kData; ++i) {
      }
      End(stream.get());
    }
    streams_.clear();
  }

  ReadResult Carry(Stream* stream) {
    const ssize_t got = stream->Read(&buffer_);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return ReadResult::kNothing;
    if (got <= 0) return ReadResult::kEnd;
    const absl::string_view bytes(buffer_.data(), got);
    if (!stream->file.Write(bytes) && stream->passes_on) return ReadResult::kEnd;
    if (stream->console != nullptr) {
      std::string lines, matching;
      stream->prefixer.Feed(bytes, &lines, &matching);
      stream->WriteLines(lines, matching);
    }
    return ReadResult::kData;
  }

  void End(Stream* stream) {
    if (stream->console == nullptr) return;
    std::string lines, matching;
    stream->prefixer.Finish(&lines, &matching);
    stream->WriteLines(lines, matching);
  }

  const std::shared_ptr<Shared> shared_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<char> buffer_;
};

LogPump::LogPump() = default;

LogPump::~LogPump() { Drain(SteadyNow()); }

absl::StatusOr<UniqueFd> LogPump::Add(LogSink sink, std::shared_ptr<PipeTail>* tail) {
  if (drained_) return absl::FailedPreconditionError("output streams can't be added after Drain");
  Lane& lane = sink.passes_on ? passed_on_ : lines_;
  if (lane.shared == nullptr) {
    auto shared = std::make_shared<Shared>();
    shared->wake.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    shared->give_up.reset(eventfd(0, EFD_CLOEXEC));
    if (!shared->wake.valid() || !shared->give_up.valid()) return ErrnoStatus(errno, "eventfd");
    lane.shared = std::move(shared);
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "can't create a pipe for a worker's output");
  UniqueFd ours(ends[0]);
  UniqueFd workers(ends[1]);
  // Only our end is non-blocking: the worker's end is a separate open file description and keeps blocking.
  fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  if (tail != nullptr) *tail = std::make_shared<PipeTail>(ours.get());
  StreamWriter* console = nullptr;
  if (sink.console_fd >= 0) {
    std::unique_ptr<StreamWriter>& writer = lane.shared->consoles[sink.console_fd];
    if (writer == nullptr) writer = NewConsole(sink.console_fd);
    console = writer.get();
  }
  {
    MutexLock lock(&lane.shared->mutex);
    lane.shared->added.push_back(
        std::make_unique<Stream>(std::move(ours), tail != nullptr ? *tail : nullptr, std::move(sink), console));
  }
  RaiseEvent(lane.shared->wake);
  if (!lane.thread.joinable()) {
    // This thread handles no signals.
    sigset_t all, saved;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    lane.thread = std::thread([shared = lane.shared] { Pump(shared).Run(); });
    pthread_sigmask(SIG_SETMASK, &saved, nullptr);
  }
  return workers;
}

bool LogPump::Drain(SteadyTime deadline) {
  drained_ = true;
  const bool all_lines = DrainLane(&lines_, deadline);
  return DrainLane(&passed_on_, deadline) && all_lines;
}

bool LogPump::DrainLane(Lane* lane, SteadyTime deadline) {
  if (!lane->thread.joinable()) return true;
  const std::shared_ptr<Shared>& shared = lane->shared;
  bool finished;
  bool all_ended;
  {
    MutexLock lock(&shared->mutex);
    shared->draining = true;
    RaiseEvent(shared->wake);
    while (!shared->finished && SteadyNow() < deadline) shared->changed.WaitUntil(&shared->mutex, deadline);
    if (!shared->finished) RaiseEvent(shared->give_up);
    const SteadyTime last = SteadyNow() + kGiveUpTime;
    while (!shared->finished && SteadyNow() < last) shared->changed.WaitUntil(&shared->mutex, last);
    finished = shared->finished;
    all_ended = shared->all_ended;
  }
  if (!finished) {
    lane->thread.detach();
    return false;
  }
  lane->thread.join();
  deadline = std::max(deadline, SteadyNow() + kGiveUpTime);
  for (const auto& [fd, console] : shared->consoles) all_ended &= console->Flush(deadline);
  return all_ended;
}

absl::StatusOr<UniqueFd> OpenLogFile(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd.valid()) {
    return ErrnoStatus(errno, absl::StrCat("can't open the log file '", path, "' (choose another --log-dir)"));
  }
  return fd;
}

}  // namespace ddprun::launcher
