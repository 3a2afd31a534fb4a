#include "rendezvous/client/connect_probe.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/endpoint.h"
#include "base/mutex.h"

namespace ddprun::rendezvous {
namespace {

// Waits for the pending connection on the socket. Returns its error: 0 if it succeeded, EINPROGRESS at the deadline.
int AwaitConnection(int fd, SteadyTime deadline) {
  while (true) {
    pollfd poll_fd{fd, POLLOUT, 0};
    const absl::Duration left = std::max(deadline - SteadyNow(), absl::ZeroDuration());
    const int ready =
        poll(&poll_fd, 1, static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)))));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return EINPROGRESS;
    int error = 0;
    socklen_t size = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
  }
}

bool IsRefused(const std::string& address, SteadyTime deadline) {
  const absl::StatusOr<Endpoint> parsed = ParseEndpoint(address);
  if (!parsed.ok()) return false;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(parsed->host.c_str(), absl::StrCat(parsed->port).c_str(), &hints, &found) != 0) return false;
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  int error = EINVAL;
  if (fd >= 0) {
    error = connect(fd, found->ai_addr, found->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) error = AwaitConnection(fd, deadline);
    close(fd);
  }
  freeaddrinfo(found);
  return error == ECONNREFUSED;
}

}  // namespace

struct ConnectProbe::Shared {
  Mutex mutex;
  Done done ABSL_GUARDED_BY(mutex);
};

ConnectProbe::ConnectProbe() : shared_(std::make_shared<Shared>()) {}

ConnectProbe::~ConnectProbe() {
  MutexLock lock(&shared_->mutex);
  shared_->done = nullptr;
}

void ConnectProbe::Start(const std::string& address, absl::Duration timeout, Done done) {
  {
    MutexLock lock(&shared_->mutex);
    shared_->done = std::move(done);
  }
  // Detached, so that the client's destructor need not wait for a packet.
  std::thread([shared = shared_, address, timeout] {
    const SteadyTime began = SteadyNow();
    const bool refused = IsRefused(address, began + timeout);
    // Called under the lock, so that the destructor waits for a call in progress.
    MutexLock lock(&shared->mutex);
    if (shared->done != nullptr) std::exchange(shared->done, nullptr)(refused, began);
  }).detach();
}

}  // namespace ddprun::rendezvous
