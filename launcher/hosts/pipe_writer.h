#ifndef DDPRUN_LAUNCHER_HOSTS_PIPE_WRITER_H_
#define DDPRUN_LAUNCHER_HOSTS_PIPE_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/os/event_loop.h"
#include "launcher/os/unique_fd.h"

namespace ddprun::launcher {

// Writes to a pipe from the loop without blocking it. Bytes that the other side does not read yet are kept. Belongs to
// the loop's thread, and must be destroyed before the loop.
class PipeWriter {
 public:
  // Makes `fd` non-blocking. `on_progress` is called when the other side has taken some bytes.
  static absl::StatusOr<std::unique_ptr<PipeWriter>> Create(EventLoop* loop, UniqueFd fd,
                                                            std::function<void()> on_progress);
  ~PipeWriter() { Close(); }
  PipeWriter(const PipeWriter&) = delete;
  PipeWriter& operator=(const PipeWriter&) = delete;

  // No-op after the other side has gone.
  void Write(std::string bytes);
  // Writes the first `bytes` of a file; it is read while it is written.
  void WriteFile(UniqueFd file, int64_t bytes);
  // Drops the bytes that were not written yet.
  void Close();

  // Bytes not taken yet, files excluded.
  size_t waiting_bytes() const { return waiting_bytes_; }
  bool idle() const { return parts_.empty(); }
  // False once the other side has closed its end.
  bool HasReader() const;

 private:
  struct Part {
    std::string bytes;
    size_t written = 0;
    UniqueFd file;  // the source of more bytes
    int64_t left = 0;
  };

  PipeWriter(EventLoop* loop, UniqueFd fd, std::function<void()> on_progress)
      : loop_(loop), fd_(std::move(fd)), on_progress_(std::move(on_progress)) {}
  void Add(Part part);
  void OnWritable();
  // Return false if the other side has gone, or the file can't be read.
  bool WriteMore();
  static bool Refill(Part* part);

  EventLoop* const loop_;
  UniqueFd fd_;  // not valid: closed
  const std::function<void()> on_progress_;
  std::deque<Part> parts_;
  size_t waiting_bytes_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_PIPE_WRITER_H_
