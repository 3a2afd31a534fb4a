#include "tests/worker_runtime/elastic/fake_launcher.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

namespace ddprun::testing {
namespace {

using worker_contract::WorkerLinkMessage;

constexpr int kPatienceMilliseconds = 60 * 1000;

bool Readable(int fd) {
  pollfd wait = {fd, POLLIN, 0};
  return poll(&wait, 1, kPatienceMilliseconds) == 1;
}

}  // namespace

FakeLauncher::FakeLauncher() {
  listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  socklen_t size = sizeof(sa_family_t);
  // The kernel chooses a name in the abstract namespace.
  EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&name), size), 0) << strerror(errno);
  EXPECT_EQ(listen(listener_, 8), 0);
  size = sizeof name;
  EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&name), &size), 0);
  address_ = "@" + std::string(name.sun_path + 1, size - offsetof(sockaddr_un, sun_path) - 1);
}

FakeLauncher::~FakeLauncher() {
  Close();
  close(listener_);
}

void FakeLauncher::Close() {
  if (connection_ >= 0) close(connection_);
  connection_ = -1;
}

bool FakeLauncher::Accept() {
  if (connection_ < 0 && Readable(listener_)) connection_ = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  return connection_ >= 0;
}

std::optional<WorkerLinkMessage> FakeLauncher::Hear() {
  if (!Accept()) return std::nullopt;
  for (;;) {
    while (!lines_.empty()) {
      const absl::StatusOr<std::optional<WorkerLinkMessage>> line =
          worker_contract::DecodeWorkerMessage(lines_.front());
      EXPECT_TRUE(line.ok()) << line.status() << ": " << lines_.front();
      lines_.erase(lines_.begin());
      if (!line.ok() || !line->has_value()) return std::nullopt;
      if (!std::holds_alternative<worker_contract::LinkProgress>(**line)) return **line;
    }
    char bytes[4096];
    const ssize_t got = Readable(connection_) ? read(connection_, bytes, sizeof bytes) : 0;
    if (got <= 0) return std::nullopt;
    EXPECT_TRUE(reader_.Read(absl::string_view(bytes, got), &lines_).ok());
  }
}

void FakeLauncher::SendToLauncher(const worker_contract::LauncherLinkMessage& line) {
  if (!Accept()) return;
  const std::string text = EncodeMessage(line);
  EXPECT_EQ(send(connection_, text.data(), text.size(), MSG_NOSIGNAL), text.size());
}

}  // namespace ddprun::testing
