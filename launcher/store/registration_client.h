#ifndef DDPRUN_LAUNCHER_STORE_REGISTRATION_CLIENT_H_
#define DDPRUN_LAUNCHER_STORE_REGISTRATION_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/os/unique_fd.h"
#include "launcher/store/registration.h"

namespace ddprun::launcher {

// Registers a node with the store that another node's launcher hosts. Never blocks; not thread-safe. For an event
// loop:
//
//   watch fd() for events(); when ready call OnReady(), then watch for the new events().
//
//   kConnecting --connected, sent--> kAwaitingReply --reply--> kRegistered
//        \------------------------------\-----------------------\----> kFailed: status()
//
// The connection stays open, idle, until destruction. kFailed after kRegistered means that the store is gone.
class RegistrationClient {
 public:
  enum class State { kConnecting, kAwaitingReply, kRegistered, kFailed };

  // Begins to connect. `address` is numeric.
  //   kInvalidArgument  it is not
  //   others            no descriptor left, no route...
  static absl::StatusOr<std::unique_ptr<RegistrationClient>> Start(absl::string_view address, int port,
                                                                   const NodeRegistration& node);

  // Stays the same, and open, until destruction.
  int fd() const { return fd_.get(); }
  // EPOLLIN and/or EPOLLOUT; 0 once failed: stop watching then.
  uint32_t events() const;
  State OnReady();

  State state() const { return state_; }
  // Why it failed, without saying where; OK otherwise.
  const absl::Status& status() const { return status_; }

 private:
  RegistrationClient(UniqueFd fd, std::string bytes) : fd_(std::move(fd)), unsent_(std::move(bytes)) {}

  void SendUnsent();
  void ReadReply();
  State Fail(int error_number, absl::string_view what);

  UniqueFd fd_;
  std::string unsent_;
  State state_ = State::kConnecting;
  absl::Status status_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_REGISTRATION_CLIENT_H_
