#include "launcher/store/connection.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace ddprun::launcher {
namespace {

constexpr size_t kReadBytes = 64 * 1024;
constexpr size_t kMovedBytes = 1024 * 1024;

// Sends as much of `bytes` as the socket accepts and advances `*sent`. False: the peer is gone.
bool SendSome(int fd, const std::string& bytes, size_t* sent) {
  while (*sent < bytes.size()) {
    const ssize_t count = send(fd, bytes.data() + *sent, bytes.size() - *sent, MSG_NOSIGNAL);
    if (count >= 0) {
      *sent += static_cast<size_t>(count);
    } else if (errno != EINTR) {
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
  }
  return true;
}

}  // namespace

bool Connection::Read() {
  char bytes[kReadBytes];
  ssize_t count;
  do {
    count = recv(fd_.get(), bytes, sizeof bytes, 0);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
  parser_.Append({bytes, static_cast<size_t>(count)});
  return count > 0;
}

bool Connection::Send(std::string bytes) {
  if (unsent_bytes() > 0) {
    output_ += bytes;
    return true;
  }
  size_t sent = 0;
  if (!SendSome(fd_.get(), bytes, &sent)) return false;
  if (sent == bytes.size()) return true;
  output_ = std::move(bytes);
  sent_ = sent;
  return true;
}

bool Connection::Flush() {
  if (!SendSome(fd_.get(), output_, &sent_)) return false;
  if (sent_ == output_.size()) {
    std::string().swap(output_);
    sent_ = 0;
  } else if (sent_ > kMovedBytes && sent_ > output_.size() / 2) {
    output_.erase(0, sent_);
    sent_ = 0;
  }
  return true;
}

}  // namespace ddprun::launcher
