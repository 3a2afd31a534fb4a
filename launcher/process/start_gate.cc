#include "launcher/process/start_gate.h"

#include <sys/socket.h>

#include <cerrno>

#include "launcher/io/errno_status.h"

namespace ddprun::launcher {

absl::StatusOr<StartGate::Ends> StartGate::Create() {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return ErrnoStatus(errno, "socketpair");
  Ends ends;
  ends.launcher.socket_.reset(sockets[0]);
  ends.process.reset(sockets[1]);
  return ends;
}

void StartGate::Open() {
  const char go = 1;
  // Fails only if the process has exited, which its pidfd reports.
  send(socket_.get(), &go, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::optional<int> StartGate::TakeError() {
  int error = 0;
  if (!socket_.valid() || recv(socket_.get(), &error, sizeof error, MSG_DONTWAIT) != sizeof error) return std::nullopt;
  return error;
}

}  // namespace ddprun::launcher
