#include "launcher/hosts/pipe_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/os/errno_status.h"

namespace ddprun::launcher {
namespace {

constexpr int64_t kPieceBytes = 256 << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<PipeWriter>> PipeWriter::Create(EventLoop* loop, UniqueFd fd,
                                                               std::function<void()> on_progress) {
  const int number = fd.get();
  if (fcntl(number, F_SETFL, fcntl(number, F_GETFL) | O_NONBLOCK) != 0) return ErrnoStatus(errno, "fcntl");
  std::unique_ptr<PipeWriter> writer(new PipeWriter(loop, std::move(fd), std::move(on_progress)));
  const absl::Status added = loop->AddFd(number, 0, [w = writer.get()](uint32_t) { w->OnWritable(); });
  if (!added.ok()) return added;
  return writer;
}

void PipeWriter::Write(std::string bytes) {
  Part part;
  waiting_bytes_ += bytes.size();
  part.bytes = std::move(bytes);
  Add(std::move(part));
}

void PipeWriter::WriteFile(UniqueFd file, int64_t bytes) {
  Part part;
  part.file = std::move(file);
  part.left = bytes;
  Add(std::move(part));
}

void PipeWriter::Add(Part part) {
  if (!fd_.valid()) return;
  parts_.push_back(std::move(part));
  if (parts_.size() == 1) (void)loop_->ModifyFd(fd_.get(), EPOLLOUT);
}

void PipeWriter::Close() {
  if (!fd_.valid()) return;
  loop_->RemoveFd(fd_.get());
  fd_.reset();
  parts_.clear();
  waiting_bytes_ = 0;
}

bool PipeWriter::HasReader() const {
  pollfd end{fd_.get(), 0, 0};
  return fd_.valid() && poll(&end, 1, 0) == 0;
}

bool PipeWriter::Refill(Part* part) {
  part->bytes.resize(std::min(part->left, kPieceBytes));
  const ssize_t got = read(part->file.get(), part->bytes.data(), part->bytes.size());
  if (got <= 0) return false;
  part->bytes.resize(got);
  part->written = 0;
  part->left -= got;
  return true;
}

void PipeWriter::OnWritable() {
  if (!WriteMore()) return Close();
  if (parts_.empty()) (void)loop_->ModifyFd(fd_.get(), 0);
  if (on_progress_) on_progress_();
}

bool PipeWriter::WriteMore() {
  while (!parts_.empty()) {
    Part& part = parts_.front();
    if (part.written < part.bytes.size()) {
      const ssize_t written = write(fd_.get(), part.bytes.data() + part.written, part.bytes.size() - part.written);
      if (written < 0) return errno == EAGAIN || errno == EINTR;
      part.written += written;
      if (!part.file.valid()) waiting_bytes_ -= written;
    } else if (part.left == 0) {
      parts_.pop_front();
    } else if (!Refill(&part)) {
      return false;
    }
  }
  return true;
}

}  // namespace ddprun::launcher
